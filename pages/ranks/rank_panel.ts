import type { ModelInfo, RunStats } from '../../src/index.js';
import { count } from '../../src/base/lists.js';
import { arrangementMap, placementOf } from './arrangement_map.js';
import { ArrangementView } from './arrangement_view.js';
import { ChunkGrid } from './chunk_grid.js';
import { pair } from '../../src/app/shared/dom.js';
import { element } from '../shared/elements.js';
import { figures, type Progress, rankTraffic } from '../shared/figures.js';
import { RankCard } from './rank_card.js';
import { type RankHoldings, rankMap } from './rank_map.js';
import { fillRankTable } from './rank_table.js';
import { sequenceMap, type SequencePhase } from './sequence_map.js';

/** The sequence that is drawn: how many tokens, and what it is at. */
export interface SequenceState {
  readonly tokens: number;
  readonly phase: SequencePhase;
}

/** The part of the page that shows the ranks of a loaded model at work. */
export class RankPanel {
  readonly #body = element('ranks-body', HTMLDivElement);
  readonly #plan = element('plan', HTMLParagraphElement);
  readonly #figures = element('rank-figures', HTMLDListElement);
  readonly #sequence = element('sequence', HTMLParagraphElement);
  readonly #list = element('rank-cards', HTMLOListElement);
  readonly #table = element('rank-table', HTMLTableElement);
  readonly #grid = new ChunkGrid(element('chunks', HTMLDivElement));
  readonly #arrangement = new ArrangementView();
  readonly #arranged = element('arrangement-own', HTMLDivElement);
  #info: ModelInfo | undefined;
  #ranks: readonly RankHoldings[] = [];
  #cards: readonly RankCard[] = [];

  /** @param virtual all ranks are on one device */
  show(info: ModelInfo, stats: RunStats, virtual: boolean): void {
    this.#info = info;
    this.#arranged.hidden = !info.plan.stages.some(({ kind }) => kind === 'arranged');
    if (!this.#arranged.hidden) {
      this.#arranged.append(this.#arrangement.node);
      const { stages, worldSize } = info.plan;
      const placement = placementOf(info.plan, info.shape.kvHeads);
      const loads = stages.flatMap(({ layers: [first, end], loads: own = [] }) =>
        Array.from({ length: end - first }, () => own),
      );
      this.#arrangement.show(arrangementMap(placement, worldSize, loads), stages[0]!.loads !== undefined);
    }
    this.#ranks = rankMap(info);
    this.#cards = this.#ranks.map((holdings) => new RankCard(holdings));
    this.#list.replaceChildren(...this.#cards.map(({ node }) => node));
    this.#plan.textContent =
      `Plan ${info.plan.policy} on ${count(info.plan.worldSize, 'rank')}` +
      (virtual && info.plan.worldSize > 1 ? ', all on one device.' : '.');
    this.#grid.clear();
    this.showSequence({ tokens: 0, phase: 'ended' });
    this.showStats(stats);
    this.#body.hidden = false;
  }

  hide(): void {
    this.#body.hidden = true;
  }

  /** Speed and traffic. @param progress of an answer that is being written */
  showStats(stats: RunStats, progress?: Progress): void {
    this.#figures.replaceChildren(...figures(stats, progress).map(([name, text]) => pair(name, text)));
    if (progress) return;
    for (const [rank, card] of this.#cards.entries()) card.showTraffic(rankTraffic(stats, rank));
    fillRankTable(this.#table, this.#ranks, stats);
  }

  showSequence({ tokens, phase }: SequenceState): void {
    const { plan, contextLength } = this.#info!;
    const { text, chunks, lanes } = sequenceMap(plan, tokens, phase, contextLength);
    this.#sequence.textContent = text;
    this.#grid.show(chunks);
    for (const [rank, card] of this.#cards.entries()) card.showLanes(lanes[rank]!);
  }
}
