// Keeps the page fresh: asks for it again every two seconds, and puts in what has changed. Without scripts it is read
// as it was when it was loaded.
"use strict";

(() => {
  const EVERY = 2000;
  const GIVE_UP = 8000;
  const link = document.getElementById("link");
  const linkText = document.getElementById("link-text");
  const away = document.getElementById("away");
  const main = document.getElementById("main");
  let failures = 0;

  function put(fresh) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const found = fresh.getElementById(part.id);
      if (!found || found.innerHTML === part.dataset.last) continue;
      const first = part.dataset.last === undefined && found.innerHTML === part.innerHTML;
      part.dataset.last = found.innerHTML;
      if (first) continue;
      const open = [...part.querySelectorAll("details[open][data-keep]")].map((one) => one.dataset.keep);
      const scrolled = [...part.querySelectorAll(".scroll, .wide")].map((one) => [one.scrollTop, one.scrollLeft]);
      const focused = part.contains(document.activeElement) ? [...part.querySelectorAll("a, summary, [tabindex]")].indexOf(document.activeElement) : -1;
      part.replaceChildren(...document.importNode(found, true).childNodes);
      for (const one of part.querySelectorAll("details[data-keep]")) one.open = open.includes(one.dataset.keep);
      part.querySelectorAll(".scroll, .wide").forEach((one, at) => {
        if (scrolled[at]) [one.scrollTop, one.scrollLeft] = scrolled[at];
      });
      if (focused >= 0) part.querySelectorAll("a, summary, [tabindex]")[focused]?.focus({ preventScroll: true });
    }
    document.title = fresh.title;
  }

  function say(state, text) {
    if (link.dataset.state !== state) {
      link.dataset.state = state;
      linkText.textContent = text;
    }
    away.hidden = state !== "away";
    main.toggleAttribute("data-stale", state === "away");
  }

  async function ask() {
    if (document.hidden) return;
    const timer = new AbortController();
    const limit = setTimeout(() => timer.abort(), GIVE_UP);
    try {
      const answer = await fetch(location.href.split("#")[0], { cache: "no-store", signal: timer.signal });
      if (!answer.ok) throw new Error(String(answer.status));
      put(new DOMParser().parseFromString(await answer.text(), "text/html"));
      failures = 0;
      say("live", "Live");
    } catch {
      failures += 1;
      if (failures > 1) say("away", "Stopped");
    } finally {
      clearTimeout(limit);
    }
  }

  async function follow() {
    for (;;) {
      await ask();
      await new Promise((resume) => setTimeout(resume, EVERY));
    }
  }

  document.addEventListener("visibilitychange", ask);
  follow();
})();
