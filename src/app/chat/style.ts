/** The element's own style. Pages change it by the custom properties, and by ::part(). */
export const STYLE = `
:host {
  --chat-ground: light-dark(#ffffff, #1d2026);
  --chat-field: light-dark(#f5f6f8, #14161a);
  --chat-ink: light-dark(#1b1f27, #e8eaee);
  --chat-soft: light-dark(#586174, #a2abbc);
  --chat-line: light-dark(#d9dde5, #343a45);
  --chat-accent: light-dark(#2a5cc4, #8fb4ff);
  --chat-on-accent: light-dark(#ffffff, #0e1420);
  --chat-bad: light-dark(#a3261d, #ff9b91);
  --chat-bad-ground: light-dark(#fdefed, #34201f);
  color-scheme: light dark;
  display: block;
  block-size: min(40rem, 85vh);
  min-block-size: 18rem;
  font: 16px/1.5 system-ui, sans-serif;
}
:host([hidden]), [hidden] { display: none !important; }
* { box-sizing: border-box; }
.chat {
  display: flex;
  flex-direction: column;
  block-size: 100%;
  overflow: hidden;
  border: 1px solid var(--chat-line);
  border-radius: 0.75rem;
  background: var(--chat-ground);
  color: var(--chat-ink);
  container-type: inline-size;
}
header {
  display: flex;
  flex-wrap: wrap;
  gap: 0.1rem 0.8rem;
  align-items: center;
  padding: 0.6rem 0.9rem;
  border-block-end: 1px solid var(--chat-line);
}
header p { margin: 0; }
.name { font-weight: 600; overflow-wrap: anywhere; }
.status { flex: 1 1 8rem; color: var(--chat-soft); font-size: 0.9rem; overflow-wrap: anywhere; }
.body { flex: 1; min-block-size: 0; overflow-y: auto; padding: 0.9rem; }
.body:focus-visible { outline: 3px solid var(--chat-accent); outline-offset: -3px; }
.log { display: flex; flex-direction: column; gap: 0.7rem; }
.message { max-inline-size: 85%; padding: 0.5rem 0.8rem; border-radius: 0.75rem; overflow-wrap: anywhere; white-space: pre-wrap; }
.message.user { align-self: flex-end; background: var(--chat-accent); color: var(--chat-on-accent); }
.message.assistant { align-self: flex-start; background: var(--chat-field); }
.message[aria-busy='true']::after { content: '▍'; color: var(--chat-accent); }
.note { margin: 0.2rem 0 0; color: var(--chat-soft); font-size: 0.85rem; overflow-wrap: anywhere; }
.panel { margin-block-end: 0.9rem; padding: 0.8rem 0.9rem; border: 1px solid var(--chat-line); border-radius: 0.6rem; }
.panel p { margin: 0.3rem 0; overflow-wrap: anywhere; }
.panel .title { margin-block-start: 0; font-weight: 600; }
.problem { margin-block-start: 0.9rem; border-color: var(--chat-bad); background: var(--chat-bad-ground); }
.problem .title { color: var(--chat-bad); }
.problem details { font-size: 0.9rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 0.9rem; margin: 0.3rem 0 0.7rem; }
dt { color: var(--chat-soft); }
dd { margin: 0; overflow-wrap: anywhere; }
progress { inline-size: 100%; block-size: 0.5rem; accent-color: var(--chat-accent); }
.actions, .suggestions { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-block-start: 0.6rem; }
form { display: flex; gap: 0.5rem; align-items: flex-end; padding: 0.7rem 0.9rem; border-block-start: 1px solid var(--chat-line); }
textarea {
  flex: 1;
  min-inline-size: 0;
  max-block-size: 9rem;
  padding: 0.55rem 0.7rem;
  border: 1px solid var(--chat-soft);
  border-radius: 0.5rem;
  background: var(--chat-field);
  color: inherit;
  font: inherit;
  resize: none;
  field-sizing: content;
}
textarea::placeholder { color: var(--chat-soft); opacity: 1; }
button {
  padding: 0.55rem 0.95rem;
  border: 1px solid var(--chat-accent);
  border-radius: 0.5rem;
  background: var(--chat-accent);
  color: var(--chat-on-accent);
  font: inherit;
  font-weight: 600;
  cursor: pointer;
}
button.quiet { background: transparent; color: var(--chat-accent); border-color: var(--chat-line); font-weight: 500; }
button[aria-disabled='true'] { cursor: default; background: transparent; color: var(--chat-soft); border-color: var(--chat-line); }
:is(button, textarea, summary):focus-visible { outline: 3px solid var(--chat-accent); outline-offset: 2px; }
summary { cursor: pointer; color: var(--chat-soft); }
.about p { white-space: pre-wrap; }
.hidden { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@container (max-width: 26rem) {
  .message { max-inline-size: 95%; }
  .body, form, header { padding-inline: 0.6rem; }
  dl { grid-template-columns: 1fr; gap: 0 }
  dd { margin-block-end: 0.35rem; }
}
@media (forced-colors: active) {
  .message { border: 1px solid; }
}
`;
