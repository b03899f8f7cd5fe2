// Buttons and forms that call the API. `data-call` is the method and the path below the base, `data-ask` the question before
// it, `data-done` what is said when it has succeeded. The fields of a form are the members of the body; without a body, the
// parameters.

import { ask, call, fill, moment, note, refresh, texts } from "./app.js";

function fields(form) {
  const given = [...new FormData(form)].filter(([, value]) => value.trim() !== "");
  const isTime = (name) => form.elements[name].type === "datetime-local";
  return given.map(([name, value]) => [name, value === "true" ? true : isTime(name) ? new Date(moment(value)).toISOString() : value.trim()]);
}

/** Before everything is paused, asks with numbers; before a class of which no unfinished task is known, since its name may be mistyped. */
async function isMeant(members) {
  const { class: name, method, everything } = Object.fromEntries(members);
  const stats = await (await call("GET", "/v1/stats")).json();
  const number = (count, state) => (stats.at_least.includes(state) ? "≥ " : "") + count.toLocaleString("en");
  if (everything) {
    const detail = fill(texts.pause_all_detail, stats.methods.length.toLocaleString("en"), number(stats.pending, "pending"), number(stats.overdue, "overdue"));
    return ask({ title: texts.pause_all_ask, body: [detail], confirm: texts.pause_all_do, danger: true });
  }
  const isOne = (known) => (method ? known === `${name}@${method}` : known.startsWith(`${name}@`));
  if (!name || stats.methods.some((known) => isOne(known.name))) return true;
  const what = method ? `${name}@${method}` : name;
  const detail = stats.methods_of ? texts.pause_unseen_detail : texts.pause_unknown_detail;
  return ask({ title: fill(texts.pause_unknown_ask, what), body: [detail], confirm: texts.pause_unknown_do });
}

/** The button that takes back what an answer to a change of pauses says; none if the change was none, or is not of a pause. */
async function undoing(method, answer) {
  const made = answer.headers.get("content-type")?.startsWith("application/json") ? await answer.json() : {};
  if (made.kind !== "pause" || (method === "POST" && answer.status !== 201)) return {};
  const scope = made.class === null ? { everything: true } : { class: made.class, ...(made.method !== null && { method: made.method }) };
  const press = async () => {
    try {
      if (method === "POST") await call("DELETE", `/v1/pauses?${new URLSearchParams(scope)}`);
      else await call("POST", "/v1/pauses", { ...scope, reason: made.reason, ...(made.until && { until: made.until }) });
      note(texts.undone);
    } catch (error) {
      note(error.message, { bad: true });
    }
    refresh();
  };
  return { button: { text: texts.undo, press } };
}

async function perform(source, members) {
  const { call: wanted, ask: title, detail, do: confirm, done } = source.dataset;
  if (title && !(await ask({ title, body: detail ? [detail] : [], confirm }))) return false;
  const [method, path] = wanted.split(/ (.*)/);
  let answer;
  try {
    if (source.dataset.check === "pause" && !(await isMeant(members))) return false;
    if (method === "DELETE") {
      const more = new URLSearchParams(members).toString();
      answer = await call(method, [path, more].filter(Boolean).join(path.includes("?") ? "&" : "?"));
    } else {
      answer = await call(method, path, members && Object.fromEntries(members));
    }
    note(done, await undoing(method, answer));
  } catch (error) {
    note(error.message, { bad: true });
    return false;
  } finally {
    refresh();
  }
  return true;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-call]");
  if (button) perform(button);
});

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-call]");
  if (!form) return;
  event.preventDefault();
  if (await perform(form, fields(form))) form.reset();
});
