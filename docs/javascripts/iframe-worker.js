/* Search on pages opened from disk.
 *
 * Browsers start no workers for `file:` pages. There, this class runs the script of a worker in a hidden frame. The page and the
 * script exchange messages as with a worker. On a server it does nothing.
 */
(() => {
  if (location.protocol !== "file:") return;

  window.Worker = class FrameWorker extends EventTarget {
    #frame = document.createElement("iframe");
    #pending = []; // messages sent before the script is loaded

    constructor(url) {
      super();
      const script = document.createElement("script");
      script.src = new URL(url, location);
      this.#frame.hidden = true;
      this.#frame.srcdoc = script.outerHTML;
      this.#frame.addEventListener("load", () => this.#start(), { once: true });
      document.body.append(this.#frame);
    }

    #start() {
      this.#frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const pending = this.#pending;
      this.#pending = null;
      pending.forEach((data) => this.postMessage(data));
    }

    postMessage(data) {
      if (this.#pending) this.#pending.push(data);
      else this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.#frame.remove();
    }
  };
})();
