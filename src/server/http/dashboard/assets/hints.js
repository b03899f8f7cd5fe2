// One stream of hints for all windows of a browser: it opens six connections to a daemon at most, and each stream keeps one.

const windows = new Set();
let source;

function open(address) {
  source = new EventSource(address);
  source.addEventListener("changed", ({ data }) => {
    for (const window of windows) window.postMessage(data);
  });
}

addEventListener("connect", ({ ports: [window] }) => {
  // An address joins; nothing leaves.
  window.addEventListener("message", ({ data: address }) => {
    if (address) {
      windows.add(window);
      if (!source || source.readyState === EventSource.CLOSED) open(address);
    } else {
      windows.delete(window);
      if (windows.size) return;
      source?.close();
      source = undefined;
    }
  });
  window.start();
});
