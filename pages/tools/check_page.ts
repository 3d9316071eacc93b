/** Whether this browser's GPU computes rightly, and how fast: one line to copy. */
import '../shared/site_nav.js';
import { KERNEL_FOLDERS } from '../../bench/kernel_suites.js';
import { runSuite } from '../../bench/run_suite.js';
import { element } from '../shared/elements.js';
import { EMBEDDED_MODEL } from '../../models/example.js';
import { RunForm } from '../shared/run_form.js';

const table = element('table', HTMLPreElement);
const line = element('line', HTMLOutputElement);
const copy = element('copy', HTMLButtonElement);

const form: RunForm = new RunForm(async (signal, say) => {
  const kernel = form.text('kernel');
  const run = await runSuite(
    {
      suite: 'check',
      adapter: {},
      model: new URL(form.text('model'), document.baseURI).href,
      load: {},
      runs: 3,
      ...(kernel !== '' && { kernel }),
    },
    { signal, onProgress: say, onWarning: say },
  );
  const lines = run.table.trimEnd().split('\n');
  line.textContent = `${lines.at(-1)} | ${browser()}`;
  table.textContent = lines.slice(0, -1).join('\n').trimEnd();
  copy.textContent = 'Copy the line';
  element('result', HTMLElement).hidden = false;
  return run.failed ? 'Done: some kernels are wrong on this GPU.' : 'Done: every kernel is right.';
});

/** The browser and its version, by what it says of itself. */
function browser(): string {
  const brands = (navigator as { userAgentData?: { brands: { brand: string; version: string }[] } }).userAgentData
    ?.brands;
  const own = brands?.filter(({ brand }) => !/not.?a.?brand/i.test(brand)).at(-1);
  return own ? `${own.brand} ${own.version}` : navigator.userAgent;
}

copy.addEventListener('click', () => {
  navigator.clipboard.writeText(line.value).then(
    () => (copy.textContent = 'Copied'),
    () => getSelection()?.selectAllChildren(line), // not allowed here: the person copies what is selected
  );
});

// The address may name both.
const query = new URLSearchParams(location.search);
const kernels = form.form.elements.namedItem('kernel') as HTMLSelectElement;
kernels.replaceChildren(new Option('every kernel', ''), ...KERNEL_FOLDERS.map((folder) => new Option(folder, folder)));
kernels.value = query.get('kernel') ?? '';
(form.form.elements.namedItem('model') as HTMLInputElement).value = query.get('model') ?? EMBEDDED_MODEL;
