import type { GenerateResult, LoadOptions, Model, ModelInfo, PlanReport } from '../../../src/index.js';
import { load, planModel } from '../../../src/index.js';
import type { AdapterEntry } from '../../../src/app/shared/adapter_list.js';
import { progressLine } from '../../../src/app/shared/progress.js';
import { pageStorage } from '../../shared/page_storage.js';
import { AnswerPanel } from './answer_panel.js';
import { compareModels, ROUNDS } from './compare.js';
import { measuredOf, MeasuredPlans } from './measured_plans.js';
import { fastestPlan, type Running } from './plan_rows.js';

type Where = Parameters<typeof load>[0];

/** An answer of fewer tokens says little of a plan's speed. */
const LEAST_TOKENS = 4;

/** What is known of the loaded model. */
interface Subject {
  readonly where: Where;
  readonly options: LoadOptions;
  readonly info: ModelInfo;
  readonly running: Running;
  readonly measured: MeasuredPlans;
  /** Ranks that one is compared with: how many, or an adapter each. */
  readonly ranks: number | readonly string[];
  readonly gpus: number;
  report: PlanReport | undefined;
}

/** Predicts what every plan would do with the loaded model while nothing else runs, and measures two of them on demand. */
export class Outlooks {
  readonly #panel = new AnswerPanel();
  #subject: Subject | undefined;
  #predicting: AbortController | undefined;

  /** @param machine its different adapters */
  open(where: Where, options: LoadOptions, info: ModelInfo, machine: Promise<readonly AdapterEntry[]>): void {
    void machine.then((adapters) => {
      const { plan, ranks } = info;
      const names = ranks.map(({ adapter }) => adapter);
      const isOne = plan.worldSize === 1;
      // Browsers name no device: one name is taken for one GPU.
      const running: Running = {
        plan: isOne ? 'single' : plan.policy,
        ranks: plan.worldSize,
        held: ranks,
        gpus: options.virtualRanks === true ? 1 : new Set(names).size,
        software: info.adapter.software,
      };
      const two = adapters.length > 1 ? adapters.slice(0, 2).map(({ request }) => request) : 2;
      // Named by degrees, or by a plan's file.
      const asked = options.ranks ?? plan.worldSize;
      const several = (typeof asked === 'number' ? asked : asked.length) > 1;
      const what = [info.name, info.weights, info.kv, info.contextLength, options.precision ?? '', ...new Set(names)];
      this.#subject = {
        where,
        options: withoutDegrees(options),
        info,
        running,
        measured: new MeasuredPlans(what.join(' '), pageStorage('sessionStorage')),
        ranks: several ? asked : isOne ? two : plan.worldSize,
        gpus: options.virtualRanks === true ? 1 : several ? running.gpus : Math.min(2, Math.max(1, adapters.length)),
        report: undefined,
      };
      this.#show();
      this.goOn();
    });
  }

  /** @param why there is no model */
  close(why = 'The model is loaded first.'): void {
    this.pause();
    this.#subject = undefined;
    this.#panel.hide();
    this.#panel.say(why);
  }

  /** Stops what measures the machine: something else is to be timed. */
  pause(): void {
    this.#predicting?.abort();
    this.#predicting = undefined;
  }

  /** Predicts, unless that is done or under way. */
  goOn(): void {
    const subject = this.#subject;
    if (!subject || subject.report || this.#predicting) return;
    const predicting = new AbortController();
    this.#predicting = predicting;
    const { plan: _, copies: __, kvProfile: ___, requests: ____, ...options } = subject.options;
    const begun = 'Measuring this machine, to predict what each plan would do';
    this.#say(subject, `${begun}…`);
    const onProgress = (what: string): void => {
      if (this.#predicting === predicting) this.#say(subject, `${begun}: ${what}…`);
    };
    void planModel(subject.where, { ...options, ranks: subject.ranks, signal: predicting.signal, onProgress })
      .then((report) => {
        if (this.#subject !== subject) return;
        subject.report = report;
        this.#show();
      })
      .catch((error: unknown) => {
        if (predicting.signal.aborted || this.#subject !== subject) return;
        this.#say(subject, `Nothing is predicted here: ${error instanceof Error ? error.message : String(error)}`);
      });
  }

  /** An answer has ended. */
  answered(policy: string, { tokens, stats }: GenerateResult): void {
    const subject = this.#subject;
    if (!subject || tokens.length < LEAST_TOKENS) return;
    subject.measured.add(measuredOf(policy, stats, 1));
    this.#show();
  }

  /**
   * Loads what the model is compared with beside it, one rank or several, and runs both in turns.
   * @throws as `load` and `generate`
   */
  async compare(
    model: Model,
    prompt: Parameters<Model['generate']>[0],
    signal: AbortSignal,
    onProgress: (line: string) => void,
  ): Promise<void> {
    const subject = this.#subject;
    if (!subject) return;
    this.pause();
    const other = await load(subject.where, {
      ...othersOptions(subject),
      signal,
      onProgress: (progress) => onProgress(`The other one: ${progressLine(progress)}`),
    });
    try {
      const results = await compareModels([model, other], prompt, signal, (round) =>
        onProgress(round === 0 ? 'Both warm up…' : `In turns: round ${round} of ${ROUNDS}…`),
      );
      for (const result of results) subject.measured.add(result);
      onProgress(
        results.length === 0 ? 'Stopped.' : `Measured: the median of ${ROUNDS} runs each, in turns, on the same text.`,
      );
    } finally {
      await other.dispose();
    }
    if (this.#subject === subject) this.#show();
  }

  /** What stands there from before stays. */
  #say(subject: Subject, text: string): void {
    if (subject.measured.all().length < 2) this.#panel.say(text);
  }

  #show(): void {
    const subject = this.#subject;
    if (!subject) return;
    const { running, measured, report, ranks, gpus, info } = subject;
    const count = typeof ranks === 'number' ? ranks : ranks.length;
    this.#panel.show({ running, measured, report, ranks: count, gpus }, info.planReason);
  }
}

/** For other plans than the one that they name. */
function withoutDegrees({
  tensor: _,
  token: __,
  sequence: ___,
  pipeline: ____,
  data: _____,
  ...rest
}: LoadOptions): LoadOptions {
  return rest;
}

/** One rank where several run, otherwise several. */
function othersOptions({ options, running, ranks, report }: Subject): LoadOptions {
  const { plan: _, ranks: __, copies: ___, kvProfile: ____, virtualRanks, memory, ...rest } = options;
  if (running.ranks > 1) {
    const first = typeof memory === 'object' ? memory[0] : memory;
    return { ...rest, ranks: 1, memory: first };
  }
  const count = typeof ranks === 'number' ? ranks : ranks.length;
  const plan = fastestPlan(report?.candidates ?? [], count) ?? 'tp';
  return { ...rest, ranks, plan, virtualRanks, memory };
}
