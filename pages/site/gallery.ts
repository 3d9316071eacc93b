/** The page to play on: the playground, and the gallery with each example's text, and the same text running. */
import { copyOnClick } from '../shared/copy.js';
import { make } from '../../src/app/shared/dom.js';
import { element } from '../shared/elements.js';
import { type Example, EXAMPLES, withModel } from './examples.js';
import { offeredModels, USUAL_MODEL } from './models.js';
import { startPlayground } from './playground.js';

const choice = element('model', HTMLSelectElement);

/** An example: its files, and where it runs. */
class ExampleView {
  readonly node = make('section', 'example');
  readonly #codes: [code: HTMLElement, text: string][] = [];
  readonly #stage = make('div', 'stage');

  constructor(private readonly example: Example) {
    const { id, title, about, files, live } = example;
    this.node.id = id;
    const heading = make('h2', '', title);
    heading.id = `${id}-title`;
    this.node.setAttribute('aria-labelledby', heading.id);
    const written = make('div', 'written', heading, make('p', '', about));
    for (const [name, text] of Object.entries(files)) {
      const code = make('code', '');
      const pre = make('pre', 'snippet', code);
      pre.tabIndex = 0;
      pre.role = 'region';
      pre.ariaLabel = `${title}: ${name}`;
      const copy = make('button', 'quiet', 'Copy');
      copy.type = 'button';
      copy.ariaLabel = `Copy ${name} of ${title}`;
      copyOnClick(copy, () => code.textContent ?? '');
      this.#codes.push([code, text]);
      written.append(make('div', 'file', make('span', '', name), copy), pre);
    }
    this.node.append(written);
    if (live !== undefined) this.node.append(this.#stage);
    this.show();
  }

  /** Writes the chosen model into the texts; what runs ends. */
  show(): void {
    for (const [code, text] of this.#codes) code.textContent = withModel(text, choice.value);
    const run = make('button', '', 'Run it here');
    run.type = 'button';
    run.ariaLabel = `Run ${this.example.title} here`;
    run.addEventListener('click', () => this.#run());
    this.#stage.replaceChildren(run, make('p', 'note', 'Nothing is downloaded before you ask for it.'));
  }

  #run(): void {
    const { title, live } = this.example;
    const frame = make('iframe', '');
    frame.title = `${title}, running`;
    frame.allow = 'clipboard-write';
    // As this page's own: it has the same folder, so that the text's relative addresses hold.
    if (live === 'text') frame.srcdoc = this.#codes[0]![0].textContent ?? '';
    else if (live) frame.src = `${live.page}?model=${encodeURIComponent(choice.value)}`;
    this.#stage.replaceChildren(frame);
  }
}

const offered = await offeredModels();
choice.replaceChildren(...offered.map(({ name, model }) => new Option(name, model)));
choice.value = USUAL_MODEL;
const views = EXAMPLES.map((example) => new ExampleView(example));
const note = element('model-note', HTMLParagraphElement);
const showModel = (): void => {
  note.textContent = offered.find(({ model }) => model === choice.value)!.about;
};
choice.addEventListener('change', () => {
  showModel();
  for (const view of views) view.show();
});
showModel();
element('examples', HTMLDivElement).replaceChildren(...views.map(({ node }) => node));
startPlayground(choice);
// Sections come after the page has looked for the one that its address names.
if (location.hash !== '') document.querySelector(`#${CSS.escape(location.hash.slice(1))}`)?.scrollIntoView();
