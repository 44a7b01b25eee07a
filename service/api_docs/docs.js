// Swagger UI over the document of this service, which a proxy may show under a prefix.
const spec = await (await fetch("openapi.json")).json();
spec.servers = [{ url: location.pathname.replace(/\/api\/v1\/docs\/?$/, "") || "/" }];
SwaggerUIBundle({ spec, dom_id: "#requests", deepLinking: true, validatorUrl: null, filter: true, displayRequestDuration: true });
