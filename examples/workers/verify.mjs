import { createHmac, timingSafeEqual } from "node:crypto";

/**
 * Whether a webhook comes from who knows one of these secrets (`whsec_...`), and is at most five minutes old.
 *
 * `headers` have lower-case names, as Node gives them. `body` is what arrived, byte for byte: a Buffer or the string it
 * decodes to, before anything parses it (`express.raw({ type: "application/json" })`).
 */
export function isSigned(headers, body, secrets, tolerance = 300) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures } = headers;
  if (!id || !signatures || !/^\d+$/.test(timestamp ?? "")) return false;
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > tolerance) return false;
  return secrets.some((secret) => {
    const key = Buffer.from(secret.slice("whsec_".length), "base64");
    if (key.length === 0) return false; // a secret that is not set: everybody could sign with it
    const wanted = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
    return signatures.split(" ").some((signature) => {
      const found = Buffer.from(signature.replace(/^v1,/, ""), "base64");
      return signature.startsWith("v1,") && found.length === wanted.length && timingSafeEqual(found, wanted);
    });
  });
}
