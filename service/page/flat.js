"use strict";
{
  const { css, mix } = deltadex.colours;

  // The same face as Points, for browsers without WebGL: slower, and on one plain canvas.
  class FlatPoints {
    constructor(canvas) {
      this.canvas = canvas;
      this.context = canvas.getContext("2d", { alpha: false });
    }

    setPlaces(places) {
      this.places = places;
    }

    setStyles(styles) {
      this.styles = styles;
    }

    draw({ camera, unit, middle, size, ratio, parts, sheet }) {
      const { context, canvas } = this;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = css(sheet);
      context.fillRect(0, 0, canvas.width, canvas.height);
      const scale = unit * camera.zoom;
      const put = (i, shown) => {
        if ((this.styles[4 * i + 3] & 3) !== shown) return;
        const x = middle[0] + (this.places[3 * i] - camera.x) * scale;
        const y = middle[1] - (this.places[3 * i + 1] - camera.y) * scale;
        if (x < -20 || y < -20 || x > canvas.width / ratio + 20 || y > canvas.height / ratio + 20) return;
        this.dot(i, x, y, size * this.places[3 * i + 2], shown === 2 ? null : sheet);
      };
      for (const shown of [1, 2]) {
        for (const [from, many] of parts) for (let i = from; i < from + many; i++) put(i, shown);
      }
    }

    dot(i, x, y, radius, veil) {
      const { context, styles } = this;
      const rgb = [...styles.subarray(4 * i, 4 * i + 3)];
      const colour = css(veil ? mix(rgb, veil, 0.87) : rgb);
      const hollow = styles[4 * i + 3] >= 4;
      context.fillStyle = context.strokeStyle = colour;
      if (radius < 2.5) {
        context.fillRect(x - radius, y - radius, 2 * radius, 2 * radius);
        return;
      }
      context.lineWidth = Math.max(1.4, 0.36 * radius);
      context.beginPath();
      context.arc(x, y, hollow ? radius - context.lineWidth / 2 : radius, 0, 7);
      hollow ? context.stroke() : context.fill();
    }
  }

  deltadex.FlatPoints = FlatPoints;
}
