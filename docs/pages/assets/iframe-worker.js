// Search runs in a worker, and browsers start no worker for pages that are opened from the disk. There, a hidden frame
// replaces the worker: messages to the worker are events in the frame, and its messages are events here.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const event = (data) => new MessageEvent("message", { data });
      const tell = (message) => {
        this.onmessage?.(message);
        this.dispatchEvent(message);
      };
      inside.postMessage = (data) => setTimeout(() => tell(event(data)));
      const ready = this.load(inside, address);
      this.postMessage = (data) => ready.then(() => inside.dispatchEvent(event(data)));
      this.terminate = () => frame.remove();
    }

    load(inside, address) {
      return new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.onload = done;
        script.onerror = failed;
        script.src = address;
        inside.document.body.append(script);
      });
    }
  };
}
