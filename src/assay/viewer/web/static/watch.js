// The page of a watched training run: it loads itself again when a checkpoint has an outcome.

const place = document.querySelector("[data-watch]");
const interval = 4000;

async function check() {
  try {
    const reply = await fetch(`/watch/${encodeURIComponent(place.dataset.watch)}/state`);
    if (reply.ok && (await reply.json()).signature !== place.dataset.signature) return location.reload();
  } catch {
    // The server stopped, or the machine sleeps: try again later.
  }
  setTimeout(check, interval);
}

if (place) setTimeout(check, interval);
