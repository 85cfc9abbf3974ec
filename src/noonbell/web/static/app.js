// The entry. Every page works without this; with it, pages are live and answer keys.
import { startClock, startPickers } from "./times.js";
import { startLive } from "./live.js";
import { startActs } from "./acts.js";
import { startKeys } from "./keys.js";
import { startForm } from "./form.js";
import { startNotify } from "./notify.js";
import { startTimeline } from "./timeline.js";

startClock();
startPickers();
startActs();
startKeys();
startForm();
startTimeline();
if (document.querySelector("[data-filters], [data-first-start]")) import("./lists.js").then(({ startLists }) => startLists());
if (isSecureContext) startNotify();
startLive();
