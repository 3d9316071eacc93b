import { POLICIES } from '../../../src/placement/index.js';
import type { PlanReport } from '../../../src/index.js';
import { make, pair } from '../../../src/app/shared/dom.js';
import { decoration, element } from '../../shared/elements.js';
import { milliseconds } from '../../shared/figures.js';
import { colourAs } from '../../shared/rank_colour.js';
import { DEGREES } from '../parameters.js';
import type { MeasuredPlan, MeasuredPlans } from './measured_plans.js';
import { type PlanNote, planNote } from './plan_notes.js';
import { comparisonOf, impossiblePlans, type PlanRow, planRows, type Running } from './plan_rows.js';
import { inWords, speedText, type TokenTime, verdict } from './verdict.js';

/** What the panel knows. */
export interface Outlook {
  readonly running: Running;
  readonly measured: MeasuredPlans;
  /** Undefined while nothing is predicted yet. */
  readonly report: PlanReport | undefined;
  /** Ranks that one is compared with, and the different GPUs that they would be on. */
  readonly ranks: number;
  readonly gpus: number;
}

/** A token's time on a rank, or of a plan as it is predicted. */
interface TimeRow {
  readonly name: string;
  readonly rank: number | undefined;
  readonly time: TokenTime;
  readonly measured: boolean;
}

/** The part of the page that says what several GPUs buy. */
export class AnswerPanel {
  readonly #verdict = element('verdict', HTMLParagraphElement);
  readonly #reason = element('plan-reason', HTMLParagraphElement);
  readonly #note = element('plan-note', HTMLParagraphElement);
  readonly #figures = element('answer-figures', HTMLDivElement);
  readonly #bars = element('plan-bars', HTMLOListElement);
  readonly #impossible = element('plan-impossible', HTMLParagraphElement);
  readonly #times = element('token-time', HTMLOListElement);
  readonly #timesNote = element('token-time-note', HTMLParagraphElement);

  constructor() {
    element('plan-notes', HTMLDListElement).replaceChildren(
      ...POLICIES.flatMap((policy) => {
        const note = policy.includes(' x ') ? undefined : planNote(policy);
        return note ? [pair(policy === 'single' ? 'one rank' : policy, ...noteNodes(note))] : [];
      }),
    );
  }

  /** Instead of a verdict: what is being done, or why there is none. */
  say(text: string): void {
    this.#verdict.textContent = text;
    this.#verdict.classList.add('pending');
  }

  /** A model is gone, or not there yet. */
  hide(): void {
    this.#figures.hidden = true;
    this.#reason.hidden = true;
    this.#note.hidden = true;
  }

  /** @param reason why the planner took the plan that runs */
  show(outlook: Outlook, reason: string | undefined): void {
    const { running, measured, report, ranks, gpus } = outlook;
    const candidates = report?.candidates ?? [];
    const comparison = comparisonOf(candidates, measured, running, ranks, gpus);
    if (comparison) {
      this.#verdict.textContent = verdict(comparison);
      this.#verdict.classList.remove('pending');
    }
    this.#reason.textContent =
      reason === undefined ? '' : `Why ${running.ranks === 1 ? 'one rank' : running.plan}: ${reason}.`;
    this.#reason.hidden = reason === undefined;
    const note = planNote(running.plan);
    this.#note.replaceChildren(...(note ? noteNodes(note) : []));
    this.#note.hidden = !note;
    const many = comparison?.ranks ?? ranks;
    this.#showBars(planRows(candidates, measured, running, many));
    const impossible = impossiblePlans(candidates, many);
    this.#impossible.textContent =
      impossible.length === 0 ? '' : `Not on ${inWords(many)} ranks, or not for this model: ${impossible.join(', ')}.`;
    this.#showTimes(timeRows(outlook, comparison?.plan ?? running.plan, many));
    this.#figures.hidden = false;
  }

  #showBars(rows: readonly PlanRow[]): void {
    const most = Math.max(...rows.flatMap(({ predicted, measured }) => [predicted ?? 0, measured ?? 0]));
    this.#bars.replaceChildren(...rows.map((row) => barRow(row, most)));
  }

  #showTimes(rows: readonly TimeRow[]): void {
    const most = Math.max(...rows.map(({ time }) => sumOf(time)));
    this.#times.replaceChildren(...rows.map((row) => timeRow(row, most)));
    this.#timesNote.hidden = rows.length > 0;
  }
}

const sumOf = ({ compute, exchange, wait }: TokenTime): number => compute + exchange + wait;

const noteNodes = ({ text, url }: PlanNote): (Node | string)[] => {
  const link = make('a', '', 'More');
  link.href = url;
  return [`${text} `, link];
};

const rowName = ({ plan, ranks }: Pick<PlanRow, 'plan' | 'ranks'>): string =>
  ranks === 1 ? 'one rank' : `${plan} on ${inWords(ranks)}`;

function barRow(row: PlanRow, most: number): HTMLLIElement {
  const { plan, ranks, predicted, measured, current, refused } = row;
  const link = make('a', '', rowName(row));
  link.href = addressOf(plan, ranks);
  const bar = (className: string, value: number): HTMLElement => {
    const node = decoration(className);
    node.style.inlineSize = `${most > 0 ? (value / most) * 100 : 0}%`;
    return node;
  };
  const texts = [
    ...(measured === undefined ? [] : [make('strong', '', `${speedText(measured)} measured`)]),
    ...(predicted === undefined ? [] : [make('span', '', `${speedText(predicted)} predicted`)]),
    ...(refused === undefined || measured !== undefined ? [] : [make('span', '', `no room: ${refused}`)]),
  ];
  const item = make(
    'li',
    current ? 'plan-row current' : 'plan-row',
    make('span', 'plan-name', link, ...(current ? [' ', make('small', '', 'runs now')] : [])),
    decoration(
      'plan-track',
      ...(measured === undefined ? [] : [bar('measured', measured)]),
      ...(predicted === undefined ? [] : [bar('predicted', predicted)]),
    ),
    make('span', 'plan-text', ...texts),
  );
  return item;
}

/** The page with this plan, all else as it is. */
function addressOf(plan: string, ranks: number): string {
  const url = new URL(location.href);
  const names = url.searchParams.get('ranks')?.split(',') ?? [];
  if (names.length !== ranks) url.searchParams.set('ranks', String(ranks));
  url.searchParams.set('plan', ranks === 1 ? 'auto' : plan);
  for (const name of DEGREES) url.searchParams.delete(name);
  return url.href;
}

const PARTS = ['compute', 'exchange', 'wait'] as const;

function timeRow({ name, rank, time, measured }: TimeRow, most: number): HTMLLIElement {
  const parts = PARTS.map((part) => {
    const node = make('span', part);
    node.style.inlineSize = `${most > 0 ? (time[part] / most) * 100 : 0}%`;
    return node;
  });
  // What is predicted is exchanging with its waits.
  const words = measured
    ? PARTS.map((part) => `${milliseconds(time[part])} ${part}`)
    : [`${milliseconds(time.compute)} compute`, `${milliseconds(time.exchange)} exchange and wait`];
  const item = make(
    'li',
    'time-row',
    make('span', 'time-name', name),
    decoration('time-track', ...parts),
    make(
      'span',
      'time-text',
      make('strong', '', milliseconds(sumOf(time))),
      sumOf(time) === time.compute ? ' compute' : ` = ${words.join(' + ')}`,
      measured ? '' : ', predicted',
    ),
  );
  if (rank !== undefined) colourAs(item, rank);
  return item;
}

function timeRows({ measured, report }: Outlook, plan: string, ranks: number): TimeRow[] {
  const rowsOf = (policy: string, count: number): TimeRow[] => {
    const run: MeasuredPlan | undefined = measured.get(policy, count);
    if (run) {
      return run.times.map((time, rank) => ({
        name: count === 1 ? 'one rank' : `rank ${rank}`,
        rank: count === 1 ? undefined : rank,
        time,
        measured: true,
      }));
    }
    const candidate = report?.candidates.find((each) => each.policy === policy && each.worldSize === count);
    if (!candidate?.plan || candidate.refused !== undefined) return [];
    const { seconds, exchangeSeconds } = candidate.decode;
    const exchange = Math.min(seconds, exchangeSeconds) * 1000;
    const time = { compute: seconds * 1000 - exchange, exchange, wait: 0 };
    return [{ name: rowName({ plan: policy, ranks: count }), rank: undefined, time, measured: false }];
  };
  return [...rowsOf('single', 1), ...(ranks === 1 ? [] : rowsOf(plan, ranks))];
}
