// Browsers refuse workers on pages opened from disk. There the search's script runs in a hidden
// frame instead, which is given the few functions that a worker has.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inside = (this.inside = frame.contentWindow);
      this.ready = new Promise((resolve) => (this.go = resolve));
      inside.dokl = {
        post: (data) => {
          const message = new MessageEvent("message", { data });
          this.dispatchEvent(message);
          if (this.onmessage) this.onmessage(message);
        },
        go: this.go,
      };
      inside.document.open();
      inside.document.write(
        `<base href="${location.href}"><script>
          postMessage = dokl.post;
          importScripts = (...urls) => urls.reduce((before, url) => before.then(() =>
            new Promise((resolve, reject) => {
              const script = document.createElement("script");
              Object.assign(script, { src: url, onload: resolve, onerror: reject });
              document.body.appendChild(script);
            })), Promise.resolve());
        </script><body><script src="${url}"></script><script>dokl.go()</script>`
      );
      inside.document.close();
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
