// The lines that `resp_clients/mod.rs` expects.

const text = (answer) => (answer === null ? "nil" : String(answer));

export const said = (step, answer) =>
  console.log(`${step}: ${Array.isArray(answer) ? answer.map(text).join(" ") : text(answer)}`);

export async function refused(step, answer) {
  try {
    said(step, await answer);
  } catch (error) {
    said(step, error.message);
  }
}
