// Requests to the server. While it is away (it was restarted, say) they wait for it; an answer is never sent twice for two inputs.

export const events = new EventTarget();
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function tell(name, detail) {
  events.dispatchEvent(new CustomEvent(name, { detail }));
}

async function request(path, options) {
  for (let tries = 0; ; tries += 1) {
    let response;
    try {
      response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
    } catch {
      tell("away", "The server does not answer; trying again. Everything that was stored is safe.");
      await pause(Math.min(2000, 150 * 2 ** Math.min(tries, 4)));
      continue;
    }
    if (response.status === 429) {
      await pause(1000);
      continue;
    }
    tell("back", "");
    if (response.status === 401) tell("stranger", "The server does not know this browser: open the address it printed when it started.");
    const content = await response.json().catch(() => ({}));
    if (!response.ok) throw new Refusal(response.status, content.detail ?? `The server answered ${response.status}.`);
    return content;
  }
}

export const get = (path) => request(path, {});

export const post = (path, body) =>
  request(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

// One name per tab. A reload keeps it, so the same input comes back; a new or duplicated tab gets one of its own.
export function holder() {
  const again = ["reload", "back_forward"].includes(performance.getEntriesByType("navigation")[0]?.type);
  let name = again ? sessionStorage.getItem("holder") : null;
  if (!name) {
    name = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem("holder", name);
  }
  return name;
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);
