// One stream of hints for all windows of a browser: it opens six connections to a daemon at most, and each stream keeps one.
// And one memory of the state of the installation, so that one window notifies when it turns bad.

const windows = new Set();
let source, state;

/** A window has read the state. It notifies if the state was known, and not bad. */
function told(window, now) {
  if (now === "bad" && state !== undefined && state !== "bad") window.postMessage({ notify: true });
  state = now;
}

function open(address) {
  source = new EventSource(address);
  source.addEventListener("changed", ({ data }) => {
    for (const window of windows) window.postMessage({ changed: JSON.parse(data) });
  });
}

addEventListener("connect", ({ ports: [window] }) => {
  // An address joins; nothing leaves.
  window.addEventListener("message", ({ data: { address, state: read } }) => {
    if (read) told(window, read);
    else if (address) {
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
