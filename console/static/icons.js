// The shapes of states: each differs by form and by colour.

import { svg } from "./render.js";

const shape = inner => svg`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">${inner}</svg>`;

const SHAPES = {
  active: svg`<circle cx="8" cy="8" r="5" fill="currentColor"/>`,
  idle: svg`<circle cx="8" cy="8" r="4.2" fill="none" stroke="currentColor" stroke-width="2"/>`,
  paused: svg`<path d="M5 4v8M11 4v8" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"/>`,
  creating: svg`<path d="M8 3v5l3 2" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>`,
  error: svg`<path d="M8 2.5 14 13H2z" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linejoin="round"/><path d="M8 6.5v3" stroke="currentColor" stroke-width="1.8"/>`,
  closing: svg`<path d="M4 8h8" stroke="currentColor" stroke-width="2.4" stroke-linecap="round"/>`,
  closed: svg`<path d="m4.5 4.5 7 7m0-7-7 7" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>`,
  human: svg`<circle cx="8" cy="5" r="2.6" fill="currentColor"/><path d="M3 13.5c.6-3 2.6-4.4 5-4.4s4.4 1.4 5 4.4z" fill="currentColor"/>`,
  requested: svg`<circle cx="8" cy="5" r="2.4" fill="none" stroke="currentColor" stroke-width="1.6"/><path d="M3.5 13c.5-2.7 2.3-4 4.5-4s4 1.3 4.5 4" fill="none" stroke="currentColor" stroke-width="1.6"/>`,
  agent: svg`<rect x="3" y="4.5" width="10" height="8" rx="2" fill="none" stroke="currentColor" stroke-width="1.6"/><path d="M8 2v2.5M6 8.5h.01M10 8.5h.01" stroke="currentColor" stroke-width="2" stroke-linecap="round"/>`,
  back: svg`<path d="m9.5 3.5-4.5 4.5 4.5 4.5" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/>`,
  forward: svg`<path d="m6.5 3.5 4.5 4.5-4.5 4.5" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/>`,
  full: svg`<path d="M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/>`,
  fit: svg`<rect x="2" y="3" width="12" height="10" rx="1.5" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="m7 6-2 2 2 2M9 6l2 2-2 2" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round"/>`,
  reload: svg`<path d="M12.5 8a4.5 4.5 0 1 1-1.4-3.2M12.5 2.5v3h-3" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/>`,
};

export const icon = name => shape(SHAPES[name] ?? SHAPES.idle);
