import { nth, sum } from '../../base/lists.js';
import { holdersOf } from '../sequences/copies.js';
import {
  attentionRoutes,
  type Cargo,
  cargoBytes,
  crossing,
  embeddingRoutes,
  expertRoutes,
  gatheredSegmentRoutes,
  gatherRoutes,
  headRoutes,
  queryRoutes,
  type Route,
  samplingRoutes,
  segmentRoutes,
  stageRoutes,
  tokenRoutes,
} from '../routes.js';
import type { LayerSizes } from '../memory.js';
import type { MachineMeasure } from './measure.js';
import { type ModelWork, sequencesPart, type StageStep } from './step_rows.js';

interface Message {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

export interface PredictedExchange {
  readonly label: string;
  readonly messages: readonly Message[];
}

/**
 * An exchange ends when the last rank has all that it waits for: the longest latency, with as many ranks as meet, and its bytes one message
 * after another.
 */
export function secondsOfExchange({ links, crowding }: MachineMeasure, { messages }: PredictedExchange): number {
  const arrivals = new Map<number, { latency: number; transfer: number }>();
  const ranks = new Set<number>();
  for (const { from, to, bytes } of messages) {
    const { latencySeconds, bytesPerSecond } = nth(nth(links, to), from);
    const { latency, transfer } = arrivals.get(to) ?? { latency: 0, transfer: 0 };
    arrivals.set(to, { latency: Math.max(latency, latencySeconds), transfer: transfer + bytes / bytesPerSecond });
    ranks.add(from).add(to);
  }
  const crowd = ranks.size > 1 ? nth(crowding, ranks.size - 1) : 1;
  return Math.max(0, ...[...arrivals.values()].map(({ latency, transfer }) => latency * crowd + transfer));
}

export type MlpKind = 'gated' | 'experts' | 'shared experts';

export const mlpKind = ({ expert, mlpSegments }: LayerSizes): MlpKind => {
  if (expert === 0) return 'gated';
  return mlpSegments.some((bytes) => bytes > 0) ? 'shared experts' : 'experts';
};

/**
 * The exchanges of one layer of a stage, as the runtime makes them.
 * @param mlp 'experts': routed ones alone; 'shared experts': those beside an MLP that runs for each row
 */
export function layerExchanges(stage: StageStep, work: ModelWork, mlp: MlpKind): PredictedExchange[] {
  const { topology, plan, index, role, sharers, gathersMlp, gathersExperts, spreadsExperts } = stage;
  const spread = mlp !== 'gated' && spreadsExperts;
  const gathersPairs = mlp !== 'gated' && gathersExperts;
  const segments = gathersMlp ? gatheredSegmentRoutes(topology, index) : segmentRoutes(topology, index, role, 'mlp');
  const exchange = (label: string, routes: readonly Route[]): PredictedExchange =>
    exchangeOf(label, routes, stage, work);
  const squares = segmentRoutes(topology, index, role, 'heads', true).map(({ cargo, ...ends }): Route => ({
    ...ends,
    cargo: cargo.kind === 'segments' ? { ...cargo, squares: true } : cargo,
  }));
  return withMessages([
    exchange('norm', work.widths.squares === undefined ? [] : squares),
    exchange('queries', queryRoutes(topology, index, role)),
    exchange(
      sharers === undefined ? 'copies' : sharers > 1 ? 'partials' : 'attended',
      attentionRoutes(topology, plan, index, role),
    ),
    exchange('o_proj', segmentRoutes(topology, index, role, 'heads')),
    exchange('rows', gathersMlp || gathersPairs ? gatherRoutes(topology, index, gathersPairs) : []),
    // Outputs of experts travel with the shared experts' segments.
    spread
      ? exchange('experts', [...(mlp === 'experts' ? [] : segments), ...expertRoutes(topology, index, role)])
      : exchange('down_proj', segments),
  ]);
}

/**
 * The exchanges of a step outside its layers, by the stage that waits for them: embedding, from stage to stage, and, where `samples` rows'
 * tokens are sampled, the last row of a prompt, candidates and tokens.
 */
export function stepExchanges(stages: readonly StageStep[], work: ModelWork, samples: number): PredictedExchange[][] {
  const [{ plan, topology, role, groupRows }] = stages as [StageStep];
  // Where places run rows of their own, each samples of its own.
  const of = role === 'generated' ? groupRows : groupRows.map((rows) => Math.min(1, rows));
  const sampled = { ...nth(stages, stages.length - 1), groupRows: topology.ownRows ? of : [samples] };
  return stages.map((stage, index) => {
    const exchanges = [
      index === 0
        ? exchangeOf('embedding', embeddingRoutes(topology, plan, work.shape.vocabSize, role), stage, work)
        : exchangeOf('stage', stageRoutes(topology, index, role), stage, work),
    ];
    if (index === stages.length - 1 && samples > 0) {
      if (role === 'prompt') {
        // The last row may have run on any replica; mostly on another one than the head's.
        const group = topology.ownRows ? 0 : groupRows.length - 1;
        const routes = headRoutes(topology, plan, role, group);
        exchanges.push(exchangeOf('last row', routes.map(onlyGroup), sampled, work));
      }
      exchanges.push(exchangeOf('candidates', samplingRoutes(topology, plan, 'candidates'), sampled, work));
      exchanges.push(exchangeOf('tokens', tokenRoutes(topology), sampled, work));
    }
    return withMessages(exchanges);
  });
}

const onlyGroup = (route: Route): Route => ({ ...route, cargo: { ...route.cargo, group: 0 } });

const withMessages = (exchanges: readonly PredictedExchange[]): PredictedExchange[] =>
  exchanges.filter(({ messages }) => messages.length > 0);

function exchangeOf(
  label: string,
  routes: readonly Route[],
  stage: StageStep,
  { widths }: ModelWork,
): PredictedExchange {
  const step = { rows: stage.groupRows, chunks: stage.chunks, offsets: stage.offsets };
  const messages = new Map<string, Message>();
  for (const { from, to, cargo } of crossing(routes)) {
    const tokensTravel = stage.topology.stages.some(({ kind }) => kind === 'token');
    const bytes = cargoBytes(cargo, widths, step, tokensTravel) * homePart(from, cargo, stage);
    const before = messages.get(`${from} ${to}`)?.bytes ?? 0;
    if (bytes > 0) messages.set(`${from} ${to}`, { from, to, bytes: before + bytes });
  }
  return { label, messages: [...messages.values()] };
}

/** Of a copied head's segment, the part of the rows whose home the sender is: no other copy sends them. */
function homePart(from: number, cargo: Cargo, { plan, stage, groupRows }: StageStep): number {
  if (cargo.kind !== 'segments' || cargo.of !== 'heads' || plan.sharing === undefined) return 1;
  const sequences = plan.sharing === 'lanes' ? 1 : sum(groupRows);
  const parts = cargo.sums.map(([head]) => {
    const holders = holdersOf(stage, head);
    return holders.length === 1 ? 1 : sequencesPart(holders, from, sequences);
  });
  return sum(parts) / parts.length;
}
