/**
 * The element's own style. Pages change it by the custom properties, and by ::part(). Its scheme is the page's: light, unless the page
 * (or a rule for the element) says `color-scheme`.
 */
export const STYLE = `
:host {
  --chat-ground: light-dark(#ffffff, #1b1d22);
  --chat-field: light-dark(#f4f5f7, #25282f);
  --chat-ink: light-dark(#1b1f27, #e8eaee);
  --chat-soft: light-dark(#586174, #a2abbc);
  --chat-line: light-dark(#dfe3ea, #383d48);
  --chat-accent: light-dark(#2a5cc4, #8fb4ff);
  --chat-on-accent: light-dark(#ffffff, #0e1420);
  --chat-bubble: light-dark(#e8eefb, #2c3648);
  --chat-bad: light-dark(#a3261d, #ff9b91);
  --chat-bad-ground: light-dark(#fdefed, #34201f);
  --chat-measure: 46rem;
  --chat-radius: 1rem;
  --chat-font: system-ui, sans-serif;
  --chat-code-font: ui-monospace, 'SF Mono', Menlo, Consolas, monospace;
  display: block;
  block-size: min(44rem, 85vh);
  block-size: min(44rem, 85dvh);
  min-block-size: 18rem;
}
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
/* Nothing of the page's text styles comes in, but for what says whether and in which colours and direction it is shown. */
.frame {
  all: initial;
  display: block;
  inline-size: 100%;
  block-size: 100%;
  color-scheme: inherit;
  forced-color-adjust: inherit;
  visibility: inherit;
  pointer-events: inherit;
  -webkit-text-size-adjust: inherit;
  text-size-adjust: inherit;
  -webkit-locale: inherit;
  font: 1rem/1.6 var(--chat-font);
}
/* What the chat is as wide as where its box asks: a container has no width of its own. It shrinks as pictures do. */
.width { block-size: 0; overflow: clip; visibility: hidden; }
.width canvas { display: block; inline-size: min(40rem, 90vw); min-inline-size: min(13rem, 60vw); max-inline-size: 100%; block-size: 0; }
.chat {
  position: relative;
  display: flex;
  flex-direction: column;
  block-size: 100%;
  overflow: hidden;
  border: 1px solid var(--chat-line);
  border-radius: var(--chat-radius);
  background: var(--chat-ground);
  color: var(--chat-ink);
  container-type: inline-size;
}
.chat.over { outline: 3px dashed var(--chat-accent); outline-offset: -6px; }
header {
  display: flex;
  gap: 0.25rem;
  align-items: center;
  min-block-size: 3rem;
  padding-block: 0.25rem;
  padding-inline: 1rem 0.5rem;
  border-block-end: 1px solid var(--chat-line);
}
.name, .status { margin: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.name:empty { display: none; }
.name { flex: 0 1 auto; min-inline-size: 4rem; font-size: 0.95rem; font-weight: 600; }
.status { flex: 1 6 auto; min-inline-size: 3rem; margin-inline-start: 0.5rem; color: var(--chat-soft); font-size: 0.85rem; }
.facts { padding: 0.75rem 1rem; border-block-end: 1px solid var(--chat-line); background: var(--chat-field); font-size: 0.9rem; }
.facts dl { margin: 0; }
.body { flex: 1; min-block-size: 0; overflow-y: auto; overscroll-behavior: contain; padding: 1rem; }
.body:focus-visible { outline: 3px solid var(--chat-accent); outline-offset: -3px; }
.measure, .ask { inline-size: 100%; max-inline-size: var(--chat-measure); margin-inline: auto; }
.log, .turn { display: flex; flex-direction: column; }
.log { gap: 1.25rem; }
.turn { gap: 0.35rem; }
/* Each paragraph is read as its own letters are; what says a direction is laid out by it, too. */
:is(p, dt, dd, button, label, figcaption span, .message.user, .message.plain) { unicode-bidi: plaintext; }
pre, code { direction: ltr; unicode-bidi: isolate; }
textarea:placeholder-shown { direction: inherit; }
.message { overflow-wrap: anywhere; }
.message.user {
  align-self: flex-end;
  max-inline-size: 85%;
  padding: 0.5rem 0.9rem;
  border-radius: var(--chat-radius);
  border-end-end-radius: 0.3rem;
  background: var(--chat-bubble);
  white-space: pre-wrap;
}
.message.assistant { padding-block: 0.25rem; }
.message.assistant.plain { white-space: pre-wrap; }
.message.assistant > :first-child { margin-block-start: 0; }
.message.assistant > :last-child { margin-block-end: 0; }
.message.assistant[aria-busy='true']::after { content: ''; display: inline-block; inline-size: 0.55em; block-size: 1.05em; vertical-align: -0.15em; background: var(--chat-accent); }
.message :is(p, ul, ol, blockquote, .table, figure) { margin-block: 0.6rem; }
.message :is(h3, h4, h5, h6) { margin-block: 1.1rem 0.4rem; font-size: 1.05rem; line-height: 1.35; }
.message h3 { font-size: 1.25rem; }
.message h4 { font-size: 1.125rem; }
.message :is(ul, ol) { padding: 0; }
.message li { margin-block: 0.2rem; margin-inline-start: 1.5rem; }
.message li.task { list-style: none; margin-inline-start: 0.2rem; }
.message blockquote { margin-inline: 0; padding-inline-start: 0.9rem; border-inline-start: 3px solid var(--chat-line); color: var(--chat-soft); }
.message hr { border: 0; border-block-start: 1px solid var(--chat-line); margin-block: 1rem; }
.message a, .facts a { color: var(--chat-accent); text-underline-offset: 0.15em; }
.message code { padding: 0.1em 0.3em; border-radius: 0.3rem; background: var(--chat-field); font: 0.9em var(--chat-code-font); }
figure.code { margin-inline: 0; border: 1px solid var(--chat-line); border-radius: 0.6rem; overflow: hidden; }
figure.code figcaption { display: flex; justify-content: space-between; align-items: center; padding-block: 0.15rem; padding-inline: 0.8rem 0.3rem; background: var(--chat-field); color: var(--chat-soft); font-size: 0.8rem; }
figure.code figcaption button { padding: 0.2rem 0.6rem; border-color: transparent; font-size: 0.8rem; }
figure.code pre { margin: 0; padding: 0.7rem 0.8rem; overflow-x: auto; line-height: 1.5; }
figure.code code { padding: 0; background: none; overflow-wrap: normal; white-space: pre; font-size: 0.875rem; }
.math { direction: ltr; unicode-bidi: isolate; white-space: pre-wrap; }
.math.display { display: block; margin-block: 0.6rem; overflow-x: auto; text-align: center; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.95rem; }
th, td { padding: 0.3rem 0.7rem; border: 1px solid var(--chat-line); text-align: start; }
th { background: var(--chat-field); }
.thought { color: var(--chat-soft); font-size: 0.9rem; }
.thought p { margin-block: 0.3rem; margin-inline: 0.2rem 0; padding-inline-start: 0.8rem; border-inline-start: 3px solid var(--chat-line); white-space: pre-wrap; overflow-wrap: anywhere; }
.call { margin: 0.15rem 0; color: var(--chat-soft); font-size: 0.9rem; }
.note { margin: 0; color: var(--chat-soft); font-size: 0.85rem; overflow-wrap: anywhere; }
.under { margin: 0; gap: 0; margin-inline-start: -0.4rem; }
.under.of-question { align-self: flex-end; margin-inline: 0; }
.under .more { padding: 0.2rem 0.8rem; border-radius: 2rem; margin-inline: 0.4rem 0.3rem; font-size: 0.9rem; }
.turn:has(~ .turn) .more, .under:not(.cut) .more { display: none; }
.under .icon-button { inline-size: 2rem; block-size: 2rem; opacity: 0.75; }
.under .icon-button:is(:hover, :focus-visible, .done) { opacity: 1; }
.editing .of-question { display: none; }
.versions { display: inline-flex; align-items: center; color: var(--chat-soft); font-size: 0.85rem; font-variant-numeric: tabular-nums; }
.versions:dir(rtl) .icon { transform: scaleX(-1); }
.edit { display: grid; gap: 0.5rem; }
.welcome { padding-block: 1.5rem 0.5rem; text-align: center; }
.welcome p { margin: 0.2rem 0; color: var(--chat-soft); overflow-wrap: anywhere; }
.welcome .title { color: var(--chat-ink); font-size: 1.25rem; font-weight: 600; }
.panel { margin-block-end: 1rem; padding: 1rem; border: 1px solid var(--chat-line); border-radius: 0.75rem; }
.panel p { margin: 0.3rem 0; overflow-wrap: anywhere; }
.panel .title, .sheet .title { margin-block: 0 0.4rem; font-size: 1.05rem; font-weight: 600; }
.panel details p { font-size: 0.9rem; }
.problem { margin-block-start: 1rem; border-color: var(--chat-bad); background: var(--chat-bad-ground); }
.problem .title { color: var(--chat-bad); }
.skeleton { display: grid; gap: 0.75rem; padding-block: 0.5rem 1rem; }
.skeleton span { block-size: 0.9rem; border-radius: 0.45rem; background: var(--chat-field); animation: pulse 1.6s ease-in-out infinite; }
.skeleton span:nth-child(2) { inline-size: 85%; }
.skeleton span:nth-child(3) { inline-size: 60%; }
@keyframes pulse { 50% { background: var(--chat-line); } }
@media (prefers-reduced-motion: reduce) { .skeleton span { animation: none; } }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 0.9rem; margin: 0.3rem 0 0.7rem; }
dt { color: var(--chat-soft); }
dd { margin: 0; overflow-wrap: anywhere; }
progress { inline-size: 100%; block-size: 0.6rem; accent-color: var(--chat-accent); }
.actions, .suggestions { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-block-start: 0.6rem; }
.under.actions { margin-block-start: 0; gap: 0; }
.suggestions { justify-content: center; }
.suggestions button { border-radius: 2rem; color: var(--chat-ink); text-align: start; }
.ask { padding: 0.25rem 1rem 1rem; max-inline-size: calc(var(--chat-measure) + 2rem); }
.composer {
  display: flex;
  align-items: flex-end;
  gap: 0.25rem;
  padding: 0.3rem;
  border: 1px solid var(--chat-soft);
  border-radius: 1.5rem;
  background: var(--chat-field);
}
.composer:has(.tray:not([hidden])) { flex-wrap: wrap; border-radius: var(--chat-radius); }
.tray { flex: 1 0 100%; display: grid; gap: 0.4rem; padding: 0.3rem 0.4rem; }
.chips { display: flex; flex-wrap: wrap; align-items: end; gap: 0.5rem; margin: 0; padding: 0; list-style: none; }
.user .chips { margin-block: 0.2rem 0.4rem; }
.user .chips:last-child { margin-block-end: 0.2rem; }
.chips .chip { margin: 0; }
.chip { position: relative; min-inline-size: 0; max-inline-size: 100%; }
.chip canvas { display: block; max-inline-size: 100%; max-block-size: 5rem; border: 1px solid var(--chat-line); border-radius: 0.6rem; }
.user .chip canvas { max-block-size: 9rem; }
.chip .large canvas { max-block-size: min(30rem, 70dvh); }
.chip .picture { display: block; padding: 0; border: 0; background: none; cursor: zoom-in; }
.chip .picture.large { cursor: zoom-out; }
.chip-head { display: inline-flex; gap: 0.45rem; align-items: center; max-inline-size: 100%; padding: 0.4rem 0.7rem; border: 1px solid var(--chat-line); border-radius: 0.6rem; background: var(--chat-ground); color: var(--chat-ink); font-size: 0.9rem; }
.tray .chip canvas { min-inline-size: 4rem; object-fit: cover; }
.tray .chip:has(.chip-head) { display: flex; align-items: center; }
.tray .chip:has(.chip-head) .chip-head { padding-inline-end: 2.2rem; }
.chip .icon { flex: none; }
.chip-name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; unicode-bidi: plaintext; }
.chip-size { flex: none; direction: ltr; unicode-bidi: isolate; color: var(--chat-soft); font-size: 0.85em; }
.chip pre { max-inline-size: 100%; max-block-size: 18rem; margin: 0.4rem 0 0; padding: 0.6rem 0.7rem; overflow: auto; border-radius: 0.6rem; background: var(--chat-ground); font: 0.85rem/1.5 var(--chat-code-font); white-space: pre-wrap; overflow-wrap: anywhere; }
.chip .remove { position: absolute; inset-block-start: 0.2rem; inset-inline-end: 0.2rem; inline-size: 1.7rem; block-size: 1.7rem; background: var(--chat-ground); border-color: var(--chat-line); color: var(--chat-ink); }
.chip:has(.chip-head) .remove { inset-block-start: auto; inset-inline-end: 0.35rem; border-color: transparent; background: none; }
.chip .remove .icon { inline-size: 0.9rem; block-size: 0.9rem; }
.composer:focus-within { border-color: var(--chat-accent); box-shadow: 0 0 0 2px var(--chat-accent); }
textarea, input, select {
  min-inline-size: 0;
  padding: 0.45rem 0.7rem;
  border: 1px solid var(--chat-soft);
  border-radius: 0.6rem;
  background: var(--chat-field);
  color: inherit;
  font: inherit;
  resize: none;
}
textarea { field-sizing: content; max-block-size: 12rem; }
.composer textarea { flex: 1; border: 0; background: none; outline: none; }
textarea::placeholder, input::placeholder { color: var(--chat-soft); opacity: 1; }
button, .button {
  padding: 0.45rem 0.95rem;
  border: 1px solid var(--chat-accent);
  border-radius: 0.6rem;
  background: var(--chat-accent);
  color: var(--chat-on-accent);
  font: inherit;
  font-size: 0.95rem;
  font-weight: 600;
  cursor: pointer;
}
:is(button, .button).quiet { background: transparent; color: var(--chat-accent); border-color: var(--chat-line); font-weight: 500; }
.icon-button {
  display: inline-grid;
  flex: none;
  place-items: center;
  inline-size: 2.5rem;
  block-size: 2.5rem;
  padding: 0;
  border-color: transparent;
  border-radius: 50%;
  background: transparent;
  color: var(--chat-soft);
}
.icon-button.camera { display: none; }
.icon-button:hover { background: var(--chat-field); color: var(--chat-ink); }
.icon-button.done { color: var(--chat-accent); }
.icon-button.main { background: var(--chat-accent); color: var(--chat-on-accent); }
.icon { inline-size: 1.2rem; block-size: 1.2rem; fill: none; stroke: currentColor; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
button[aria-disabled='true'] { cursor: default; background: transparent; color: var(--chat-soft); border-color: var(--chat-line); }
.icon-button[aria-disabled='true'] { border-color: transparent; opacity: 0.6; }
.icon-button.main[aria-disabled='true'] { border-color: var(--chat-line); background: transparent; color: var(--chat-soft); opacity: 1; }
.down { position: absolute; inset-inline-start: calc(50% - 1.25rem); inset-block-end: 5.2rem; border-color: var(--chat-line); background: var(--chat-ground); box-shadow: 0 1px 4px rgb(0 0 0 / 0.2); }
:is(button, .button:focus-within, .chip pre, .edit textarea, input, select, .sheet textarea, summary, pre, .table):focus-visible { outline: 3px solid var(--chat-accent); outline-offset: 2px; }
.button:focus-within { outline: 3px solid var(--chat-accent); outline-offset: 2px; }
summary { cursor: pointer; color: var(--chat-soft); }
.about p { white-space: pre-wrap; }
.sheet { inline-size: min(34rem, calc(100vw - 2rem)); max-block-size: calc(100dvh - 2rem); padding: 1.25rem; border: 1px solid var(--chat-line); border-radius: var(--chat-radius); background: var(--chat-ground); color: var(--chat-ink); }
.sheet::backdrop { background: rgb(0 0 0 / 0.45); }
.sheet > h3.title { margin-block-start: 1.5rem; }
.sheet > h2:focus { outline: none; }
.models, .kept { display: grid; gap: 0.4rem; margin: 0.6rem 0; padding: 0; list-style: none; }
.models { max-block-size: 40dvh; overflow-y: auto; }
.model { display: grid; grid-template-columns: 1fr auto; gap: 0.1rem 0.75rem; inline-size: 100%; padding: 0.55rem 0.8rem; border: 1px solid var(--chat-line); border-radius: 0.6rem; background: transparent; color: var(--chat-ink); text-align: start; font-weight: 400; }
button.model:hover { background: var(--chat-field); }
div.model { color: var(--chat-soft); }
.model-name { font-weight: 600; overflow-wrap: anywhere; }
.model-facts { grid-column: 1 / -1; color: var(--chat-soft); font-size: 0.85rem; }
.badge { align-self: center; padding: 0.05rem 0.6rem; border: 1px solid var(--chat-line); border-radius: 1rem; font-size: 0.8rem; color: var(--chat-soft); white-space: nowrap; }
.badge.kept, .badge.fits { border-color: var(--chat-accent); color: var(--chat-accent); }
.badge.kept { background: var(--chat-accent); color: var(--chat-on-accent); }
.other { display: flex; gap: 0.5rem; align-items: end; }
.other .setting { flex: 1; }
.row { display: flex; gap: 0.75rem; align-items: center; justify-content: space-between; overflow-wrap: anywhere; }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: 0.7rem 1rem; margin-block-end: 0.6rem; }
.setting { display: grid; gap: 0.15rem; align-content: end; }
.setting span { color: var(--chat-soft); font-size: 0.85rem; }
.setting:has(textarea) { grid-column: 1 / -1; }
.hidden { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; padding: 0; border: 0; }
@container (max-width: 28rem) {
  .message.user { max-inline-size: 95%; }
  .body { padding: 0.75rem; }
  .ask { padding: 0.25rem 0.6rem 0.6rem; }
  header { padding-inline-start: 0.75rem; }
  dl { grid-template-columns: 1fr; gap: 0 }
  dd { margin-block-end: 0.35rem; }
}
@media (pointer: coarse) {
  .sees .icon-button.camera { display: inline-grid; }
  .chip .remove { inline-size: 2rem; block-size: 2rem; }
  .icon-button, .under .icon-button { inline-size: 2.75rem; block-size: 2.75rem; }
  .under .more, figure.code figcaption button { min-block-size: 2.75rem; }
}
@media (forced-colors: active) {
  .message.user, .composer, .icon-button { border: 1px solid; }
}
`;
