// Buttons and forms that call the API. `data-call` is the method and the path below the base, `data-ask` the question before
// it, `data-done` what is said when it has succeeded. The fields of a form are the members of the body; without a body, the
// parameters.

import { ask, call, note, refresh } from "./app.js";

function fields(form) {
  const given = [...new FormData(form)].filter(([, value]) => value.trim() !== "");
  return given.map(([name, value]) => [name, value === "true" ? true : value.trim()]);
}

async function perform(source, members) {
  const { call: wanted, ask: title, detail, do: confirm, done } = source.dataset;
  if (title && !(await ask({ title, body: detail ? [detail] : [], confirm }))) return false;
  const [method, path] = wanted.split(/ (.*)/);
  try {
    if (method === "DELETE") {
      const more = new URLSearchParams(members).toString();
      await call(method, [path, more].filter(Boolean).join(path.includes("?") ? "&" : "?"));
    } else {
      await call(method, path, members && Object.fromEntries(members));
    }
    note(done);
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
