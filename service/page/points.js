"use strict";
{
  const VERTEX = `
    attribute vec3 a_place;
    attribute vec4 a_style;
    uniform vec2 u_camera, u_scale, u_middle;
    uniform float u_size, u_pass;
    varying vec3 v_colour;
    varying float v_hollow, v_width;
    void main() {
      float state = floor(a_style.a * 255.0 + 0.5);
      v_hollow = step(3.5, state);
      float shown = state - 4.0 * v_hollow;
      v_colour = a_style.rgb;
      v_width = u_size * a_place.z + 1.0;
      gl_PointSize = v_width;
      vec2 place = (a_place.xy - u_camera) * u_scale + u_middle;
      gl_Position = abs(shown - u_pass) < 0.5 ? vec4(place, 0.0, 1.0) : vec4(9.0, 9.0, 9.0, 1.0);
    }`;
  const FRAGMENT = `
    precision mediump float;
    uniform vec3 u_sheet;
    uniform float u_alpha;
    varying vec3 v_colour;
    varying float v_hollow, v_width;
    void main() {
      float radius = 0.5 * v_width;
      float d = length(gl_PointCoord - 0.5) * v_width;
      float cover = clamp(radius - d, 0.0, 1.0);
      if (cover <= 0.0) discard;
      float ring = max(1.4, 0.36 * radius);
      float hole = v_hollow * clamp(radius - ring - d, 0.0, 1.0);
      float edge = (1.0 - v_hollow) * step(4.5, radius) * clamp(d - radius + 2.0, 0.0, 1.0);
      gl_FragColor = vec4(mix(v_colour, u_sheet, max(hole, edge)), cover * u_alpha);
    }`;
  const SHOWN = 2, DIMMED = 1;

  function program(gl) {
    const made = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(made, shader);
    }
    gl.linkProgram(made);
    if (!gl.getProgramParameter(made, gl.LINK_STATUS) && !gl.isContextLost()) {
      throw new Error(gl.getProgramInfoLog(made));
    }
    return made;
  }

  // Draws points with WebGL: places go up once, styles when they change, the camera is four numbers.
  class Points {
    constructor(canvas, changed) {
      this.gl = canvas.getContext("webgl", {
        alpha: false, antialias: false, depth: false, powerPreference: "high-performance",
      });
      if (!this.gl) throw new Error("no WebGL");
      this.canvas = canvas;
      this.count = 0;
      canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
      canvas.addEventListener("webglcontextrestored", () => { this.prepare(); changed(); });
      this.prepare();
    }

    prepare() {
      const { gl } = this;
      this.program = program(gl);
      gl.useProgram(this.program);
      this.at = (name) => gl.getUniformLocation(this.program, name);
      this.uniforms = Object.fromEntries(
        ["camera", "scale", "middle", "size", "pass", "sheet", "alpha"].map((n) => [n, this.at(`u_${n}`)]));
      this.buffers = [["a_place", 3, gl.FLOAT], ["a_style", 4, gl.UNSIGNED_BYTE]].map(
        ([name, size, type]) => {
          const buffer = gl.createBuffer(), at = gl.getAttribLocation(this.program, name);
          gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
          gl.enableVertexAttribArray(at);
          gl.vertexAttribPointer(at, size, type, type === gl.UNSIGNED_BYTE, 0, 0);
          return buffer;
        });
      gl.enable(gl.BLEND);
      gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE);
      if (this.places) this.setPlaces(this.places);
      if (this.styles) this.setStyles(this.styles, this.someDimmed);
    }

    // x, y, size of every point
    setPlaces(places) {
      const { gl } = this;
      this.places = places;
      this.count = places.length / 3;
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[0]);
      gl.bufferData(gl.ARRAY_BUFFER, places, gl.STATIC_DRAW);
    }

    // red, green, blue, state of every point; state 0 hidden, 1 dimmed, 2 shown, +4 hollow
    setStyles(styles, someDimmed) {
      const { gl } = this;
      this.styles = styles;
      this.someDimmed = someDimmed;
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[1]);
      gl.bufferData(gl.ARRAY_BUFFER, styles, gl.DYNAMIC_DRAW);
    }

    // `parts`: where to begin and how many points, one after the other.
    draw({ camera, unit, middle, area, size, ratio, parts, sheet, alpha }) {
      const { gl, uniforms, canvas } = this, [width, height] = area;
      if (gl.isContextLost()) return;
      gl.viewport(0, 0, canvas.width, canvas.height);
      gl.clearColor(...sheet.map((value) => value / 255), 1);
      gl.clear(gl.COLOR_BUFFER_BIT);
      if (!this.count) return;
      const scale = 2 * unit * camera.zoom;
      gl.uniform2f(uniforms.camera, camera.x, camera.y);
      gl.uniform2f(uniforms.scale, scale / width, scale / height);
      gl.uniform2f(uniforms.middle, (2 * middle[0]) / width - 1, 1 - (2 * middle[1]) / height);
      gl.uniform1f(uniforms.size, 2 * size * ratio);
      gl.uniform3f(uniforms.sheet, ...sheet.map((value) => value / 255));
      if (this.someDimmed) this.pass(DIMMED, 0.13, parts);
      this.pass(SHOWN, alpha, parts);
    }

    pass(shown, alpha, parts) {
      this.gl.uniform1f(this.uniforms.pass, shown);
      this.gl.uniform1f(this.uniforms.alpha, alpha);
      for (const [from, many] of parts) this.gl.drawArrays(this.gl.POINTS, from, many);
    }
  }

  deltadex.Points = Points;
}
