// A notification of the desktop when the state of the installation turns bad: one for all windows of a browser. Off until it is
// switched on. What the windows share remembers the state, and chooses the window: `hints.js`.

const { base } = document.body.dataset;
const NAME = `lapsed-notifies ${base}`;

/** True if the user wants notifications, and the browser shows them. */
export const notifies = () => window.Notification?.permission === "granted" && localStorage.getItem(NAME) === "yes";

/** Says to all windows which state is shown here, if any. */
export function told(shared, shown) {
  const { state } = shown.querySelector("[data-state]")?.dataset ?? {};
  if (state) shared?.port.postMessage({ state });
}

/** The state has turned bad, and this window notifies. */
export function tell() {
  if (!notifies()) return;
  const { says } = document.querySelector("[data-state]").dataset;
  const notification = new Notification(says, { body: location.host, tag: NAME });
  notification.addEventListener("click", () => {
    window.focus();
    location.href = `${base}/`;
  });
}

/** Shows the switch where it can do something: browsers notify of pages that are safe. */
export function offer(shared, refused) {
  const label = document.getElementById("notify");
  const box = label.firstElementChild;
  const show = () => { box.checked = notifies(); };
  label.hidden = !(shared && window.Notification && isSecureContext);
  box.addEventListener("change", async () => {
    const wanted = box.checked;
    if (wanted && (await Notification.requestPermission()) !== "granted") refused();
    localStorage.setItem(NAME, wanted ? "yes" : "no");
    show();
  });
  addEventListener("storage", show);
  show();
}
