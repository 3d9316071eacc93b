/** What GPUs answered to the suite `gpu`, side by side: the files of bench/results/gpu, and those that one opens here. */
import {
  type Asked,
  isTime,
  namesOf,
  readGpuSubmission,
  readSubmission,
  sideBySide,
  type Submission,
  verdictOf,
} from '../../bench/submissions.js';
import { decimals } from '../../bench/table.js';
import { make, pair } from '../../src/app/shared/dom.js';
import { decoration, element } from '../shared/elements.js';

const kept = Object.entries(
  import.meta.glob<string>(['../../bench/results/gpu/*.json', '!../../bench/results/gpu/schema.json'], {
    query: '?raw',
    import: 'default',
    eager: true,
  }),
).map(([path, json]) => readGpuSubmission(json, path.split('/').at(-1)!));
const shown: Submission[] = [...kept];

/** Bars of one thing, the best first. */
function barsOf({ what, unit, answers }: Asked): HTMLElement {
  const sorted = answers.toSorted((a, b) => (isTime(unit) ? a.value - b.value : b.value - a.value));
  const most = Math.max(...answers.map(({ value }) => value));
  const items = sorted.map(({ by, value, note }) => {
    const bar = decoration('share');
    bar.style.width = `${most > 0 ? (100 * value) / most : 0}%`;
    return make(
      'li',
      '',
      make('span', '', by),
      make('span', '', `${decimals(value)} ${unit}${note && `, ${note}`}`),
      bar,
    );
  });
  return make('div', 'asked', make('h3', '', what), make('ul', 'shares', ...items));
}

function draw(): void {
  element('state', HTMLParagraphElement).textContent =
    kept.length === 0
      ? 'No GPU has measured anything yet: nothing is drawn until one has.'
      : `${kept.length} ${kept.length === 1 ? 'result was' : 'results were'} sent.`;
  const names = namesOf(shown);
  element('sent', HTMLDListElement).replaceChildren(
    ...shown.map((submission, at) => {
      const { date, version, commit, browser, system, os, chrome, node, note } = submission.environment;
      const left = submission.results.filter(({ left_out: why }) => why !== undefined).map(({ title }) => title);
      const where = [
        browser ?? (node && `Node ${node}`),
        chrome && `Chrome ${chrome}`,
        system ?? os,
        version ?? commit,
      ];
      const told = [
        date.slice(0, 10),
        ...where,
        verdictOf(submission),
        left.length > 0 ? `not all of: ${left.join('; ')}` : '',
        note,
      ];
      return pair(names[at]!, told.filter(Boolean).join(' · '));
    }),
  );
  element('parts', HTMLDivElement).replaceChildren(
    ...sideBySide(shown).map(({ title, asked }) => {
      const details = make('details', 'card', make('summary', '', make('h2', '', title)), ...asked.map(barsOf));
      details.open = true;
      return details;
    }),
  );
}

const files = element('files', HTMLInputElement);
async function open(): Promise<void> {
  const problem = element('error', HTMLElement);
  problem.hidden = true;
  for (const file of files.files ?? []) {
    try {
      shown.push(readSubmission(await file.text(), file.name));
    } catch (error) {
      element('error-text', HTMLParagraphElement).textContent = (error as Error).message;
      problem.hidden = false;
    }
  }
  files.value = '';
  draw();
}

files.addEventListener('change', () => void open());
draw();
