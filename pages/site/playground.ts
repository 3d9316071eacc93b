/**
 * The playground: a question, options and a form, asked here. The address has all of it, behind `#`, so that no server is told; and
 * below stands the program that asks the same.
 */
import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../../models/example.js';
import { messageOf } from '../../src/base/errors.js';
import { progressLines } from '../../src/app/shared/progress.js';
import { type ChatMessage, type GenerateOptions, load, type Model } from '../../src/index.js';
import { copyOnClick } from '../shared/copy.js';
import { element } from '../shared/elements.js';

const PREFIX = '#playground?';
const NUMBERS = ['temperature', 'topP', 'topK', 'maxTokens', 'seed'] as const;
const USUAL = 'Why is the sky blue?';
const EXAMPLE = `${STORY} ${QUESTIONS[0].question}`;

/** What the fields hold, by their names. */
const textsOf = (form: HTMLFormElement): [string, string][] =>
  [...new FormData(form)].map(([name, value]) => [name, typeof value === 'string' ? value : '']);

/** What is asked: what `generate` takes. @throws SyntaxError for a schema that is no JSON */
function readAsked(form: HTMLFormElement): readonly [{ readonly messages: readonly ChatMessage[] }, GenerateOptions] {
  const texts = new Map(textsOf(form));
  const of = (name: string): string => (texts.get(name) ?? '').trim();
  const [system, schema] = [of('system'), of('schema')];
  const messages: ChatMessage[] = [{ role: 'user', content: of('prompt') }];
  if (system !== '') messages.unshift({ role: 'system', content: system });
  const numbers = NUMBERS.filter((name) => of(name) !== '').map((name) => [name, Number(of(name))] as const);
  const options = {
    ...Object.fromEntries(numbers),
    ...(schema !== '' && {
      responseFormat: { type: 'json_schema', json_schema: { schema: JSON.parse(schema) as object } },
    }),
  };
  return [{ messages }, options as GenerateOptions];
}

/** As people write it in a program: names without quotes. */
const written = (value: object): string =>
  JSON.stringify(value, undefined, 2).replaceAll(/^( *)"([a-z_]\w*)":/gim, '$1$2:');

/** @param choice the page's model */
export function startPlayground(choice: HTMLSelectElement): void {
  const form = element('play', HTMLFormElement);
  const status = element('play-status', HTMLParagraphElement);
  const answer = element('play-answer', HTMLPreElement);
  const program = element('play-program', HTMLPreElement).querySelector('code')!;
  const run = element('play-run', HTMLButtonElement);
  const stop = element('play-stop', HTMLButtonElement);
  const prompt = form.elements.namedItem('prompt') as HTMLTextAreaElement;
  let model: { readonly name: string; readonly loads: Promise<Model> } | undefined;
  let asking: AbortController | undefined;

  const show = (): void => {
    try {
      const [asked, options] = readAsked(form);
      const given = Object.keys(options).length > 0 ? `, ${written(options)}` : '';
      program.textContent = [
        "import { load } from 'splitkv';",
        '',
        `const model = await load('${choice.value}');`,
        `const { text } = await model.generate(${written(asked)}${given}).result;`,
        'console.log(text);',
      ].join('\n');
      status.textContent = '';
    } catch (error) {
      status.textContent = `The schema is no JSON: ${messageOf(error)}`;
    }
  };
  /** What somebody wrote stays; the example knows its story alone, and no other model does. */
  const suggest = (): void => {
    if (['', USUAL, EXAMPLE].includes(prompt.value)) prompt.value = choice.value === EMBEDDED_MODEL ? EXAMPLE : USUAL;
  };
  const keep = (): void => {
    show();
    const state = new URLSearchParams({ model: choice.value });
    for (const [name, value] of textsOf(form)) if (value !== '') state.set(name, value);
    history.replaceState(null, '', PREFIX + String(state));
  };
  /** What the address asks, if it does: texts alone, which nothing runs before somebody says so. */
  const restore = (): void => {
    if (!location.hash.startsWith(PREFIX)) return;
    const state = new URLSearchParams(location.hash.slice(PREFIX.length));
    for (const field of form.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>('[name]')) {
      field.value = state.get(field.name) ?? '';
    }
    const isOffered = [...choice.options].some(({ value }) => value === state.get('model'));
    if (isOffered) choice.value = state.get('model')!;
    choice.dispatchEvent(new Event('change'));
    form.scrollIntoView();
  };
  const loaded = async (signal: AbortSignal): Promise<Model> => {
    if (model?.name !== choice.value) {
      await model?.loads.then((other) => other.dispose()).catch(() => {});
      const name = choice.value;
      const onProgress = progressLines((line) => (status.textContent = line));
      model = { name, loads: load(name, { onProgress, signal }) };
      model.loads.catch(() => (model = undefined));
    }
    return model.loads;
  };
  const ask = async (signal: AbortSignal): Promise<void> => {
    const asked = readAsked(form);
    const generation = (await loaded(signal)).generate(asked[0], { ...asked[1], signal });
    status.textContent = 'Reading the prompt';
    for await (const piece of generation) answer.append(piece);
    const { finish_reason, tokens, stats } = await generation.result;
    const ends = { stop: 'ended by itself', length: 'cut at the limit of tokens', abort: 'stopped' };
    status.textContent =
      `${tokens.length} tokens, ${ends[finish_reason as keyof typeof ends] ?? finish_reason}; ` +
      `${stats.tokens_per_second.toPrecision(3)} tokens/s, the first after ${Math.round(stats.ttft_ms)} ms`;
  };

  form.addEventListener('input', keep);
  choice.addEventListener('change', () => {
    suggest();
    if (location.hash.startsWith(PREFIX)) keep();
    else show();
  });
  copyOnClick(element('play-copy', HTMLButtonElement), () => program.textContent ?? '');
  copyOnClick(element('play-link', HTMLButtonElement), () => (keep(), location.href));
  stop.addEventListener('click', () => asking?.abort());
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    asking = new AbortController();
    [run.disabled, stop.disabled] = [true, false];
    answer.textContent = '';
    ask(asking.signal)
      .catch((error: unknown) => (status.textContent = asking?.signal.aborted ? 'Stopped' : messageOf(error)))
      .finally(() => ([run.disabled, stop.disabled] = [false, true]));
  });
  globalThis.addEventListener('hashchange', restore);
  restore();
  suggest();
  show();
}
