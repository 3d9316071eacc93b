import { expertLinear, type ExpertLinearProblem } from '../../../../shaders/moe/expert_linear/index.js';
import {
  canCombine,
  expertLinearCombine,
  type SharedDown,
} from '../../../../shaders/moe/expert_linear_combine/index.js';
import {
  canRoute,
  expertLinearRoute,
  type ExpertRouteProblem,
} from '../../../../shaders/moe/expert_linear_route/index.js';
import { expertLinearTiled } from '../../../../shaders/moe/expert_linear_tiled/index.js';
import { moeSort } from '../../../../shaders/moe/moe_sort/index.js';
import { decodesBytes } from '../../../../shaders/linear/fast/fast.js';
import type { MatrixType } from '../../../../shaders/linear/pack.js';
import { besideAt, type Matrix, type MatrixShard } from '../../weights/matrix.js';
import { moeCombine } from '../../../../shaders/moe/moe_combine/index.js';
import { moeRoute } from '../../../../shaders/moe/moe_route/index.js';
import { known } from '../../../base/errors.js';
import type { Buffer } from '../../../gpu/index.js';
import { expertRoutes, matesOf, routingRoutes } from '../../../placement/index.js';
import type { ExpertsConfig } from '../../config/model_config.js';
import type { AlikeLayers, Half, MlpLayers, MlpProgram } from '../layer.js';
import { settled } from '../../adapters/loaded_adapters.js';
import { fuses, fusesLoneNorm } from '../fusion.js';
import { type Projection, recordLinear } from '../linear/linear.js';
import { type Norm, recordNorm } from '../norm.js';
import { HalvesSum } from '../residual.js';
import { rowsOf } from '../linear/parts.js';
import { activationStride, paddedName } from '../roles.js';
import { halfOf, isAdapted, normedOf, type StageRows } from '../rows.js';
import type { RankRecorder, RegionsOf } from '../world.js';
import type { ExpertWeights } from './mlp_weights.js';
import { DenseMlp, denseWidestRow, heldColumns } from './dense.js';
import { GatheredRows, gatheringPlaces } from './gathered_rows.js';

/** The layers of a stage whose MLP is a mixture of experts, with shared ones beside them or without. */
export class ExpertLayers implements MlpLayers {
  /** Every expert reads the normalised rows, but for a lone row on a GPU. */
  readonly sharesNormed = true;
  readonly widestRow: number;
  /** Columns of the shared experts, or of the MLP beside them, that the rank holds. */
  readonly sharedWidth: number;
  /** Experts are spread over places that run rows of their own: each rank works on the rows of all. */
  readonly gathers: boolean;
  /** Ranks that hold experts, where they are spread. */
  readonly ranks: readonly number[];
  /** u32 [experts]: index among `ranks`. */
  readonly owners: Buffer | undefined;

  constructor(readonly alike: AlikeLayers<ExpertsConfig, ExpertWeights>) {
    const { stage, config, weights } = alike;
    const { device, topology, hiddenStride } = stage;
    const { numExperts, expertsPerToken, width } = config;
    const dense = weights.flatMap(({ shared, beside }) => shared ?? beside?.mlp ?? []);
    this.sharedWidth = Math.max(0, ...dense.map(heldColumns));
    this.gathers = topology.gathersExperts;
    this.ranks = [];
    if (topology.spreadsExperts) {
      const sharing = this.gathers ? topology.holders : matesOf(topology, topology.share);
      const holding = sharing.filter(({ experts }) => experts.length > 0);
      this.ranks = holding.map(({ rank }) => rank);
      const owners = Uint32Array.from({ length: numExperts }, (_, expert) =>
        holding.findIndex(({ experts }) => experts.includes(expert)),
      );
      this.owners = device.createBuffer('expert owners', owners.byteLength);
      device.write(this.owners, 0, owners);
    }
    // Buffers of all places' rows are as many times as large.
    const all = this.gathers ? topology.placeRanks.length : 1;
    this.widestRow = Math.max(
      config.sharedWidth > 0 || config.beside ? denseWidestRow(stage, this.sharedWidth) : 0,
      expertsPerToken * Math.max(hiddenStride * Math.max(all, this.ranks.length), activationStride(width) * all),
      activationStride(numExperts) * all,
    );
  }

  program(rows: StageRows): MlpProgram {
    return this.alike.config.beside ? new ExpertsBeside(this, rows) : new ExpertProgram(this, rows);
  }
}

/** Experts beside a dense MLP: norm(mlp(norm(x))) + norm(experts(norm(x))), normalised and added to x. */
class ExpertsBeside implements MlpProgram {
  /** f32 [rows][hiddenStride]. */
  readonly #sum: Buffer;
  readonly #halves: HalvesSum;
  readonly #mlp: DenseMlp;
  readonly #experts: ExpertProgram;

  constructor(
    readonly of: ExpertLayers,
    readonly rows: StageRows,
  ) {
    const { stage, config, suffix } = of.alike;
    const { hiddenStride: stride } = stage;
    const { hiddenSize: width } = stage.config;
    this.#sum = rows.scratch.createBuffer(paddedName(`${rows.role} halves`, width), rows.rows * stride * 4);
    this.#halves = new HalvesSum(this.#sum, undefined, { rows: rows.rows, width, stride });
    const inner = { ...rows, x: this.#sum, residual: this.#halves };
    const { activation } = config.beside ?? config;
    this.#mlp = new DenseMlp(stage, inner, { name: `down beside${suffix}`, width: of.sharedWidth, activation });
    this.#experts = new ExpertProgram(of, inner);
  }

  record(recorder: RankRecorder, { before, behind, weights }: Half<ExpertWeights>): void {
    const { rows } = this;
    const beside = known(weights.beside, 'MLP beside experts');
    rows.residual.settle(recorder);
    this.#halves.begin();
    const input = normedOf(rows);
    recordNorm(recorder, known(before, 'norm before an MLP'), this.#halves.shape, rows.x, input);
    this.#mlp.record(recorder, { weights: beside.mlp, before: undefined, behind: beside.mlpBehind, input });
    this.#experts.record(recorder, { weights, before: beside.before, behind: beside.behind, input: rows.x });
    rows.residual.add(recorder, this.#sum, known(behind, 'norm behind both'));
  }
}

/** What an expert's projection reads and writes. `norm`: RMS-normalises x first, generated rows where the norm is fused. */
type ExpertProjection = Omit<ExpertLinearProblem, 'rows' | 'topK' | 'experts' | 'type' | 'bias'> &
  Pick<Projection, 'x' | 'norm'> & { readonly out: Buffer; readonly bias: Buffer | undefined };

/** How shared experts run with the routed ones. */
interface SharedBeside {
  readonly gateUp: ExpertRouteProblem['shared'];
  readonly down: SharedDown;
}

/**
 * Router, routed and shared experts read the normalised rows, so the norm is a dispatch of its own, or on a GPU each of them normalises
 * a lone row, whose experts are chosen where they are multiplied, with the shared ones beside them. The shared experts' output is added
 * to x first, then the weighted sum of the routed ones, in ascending expert order; a rank that has all experts adds the sum up where it
 * projects down. Where places run their own rows, each routes its own and gets the
 * outputs back.
 */
class ExpertProgram implements MlpProgram {
  readonly #logits: Buffer;
  readonly #ids: Buffer;
  /** Those of all the rows that the rank's experts work on. */
  readonly #allIds: Buffer;
  readonly #weights: Buffer;
  /** The most rows that the rank's experts work on. */
  readonly #most: number;
  /** u32: how many rows there are. */
  readonly #rowCount: Buffer;
  readonly #pairs: Buffer;
  readonly #pairCounts: Buffer;
  readonly #hidden: Buffer;
  /** f32 [rows][expertsPerToken][hiddenStride], of the experts on this rank. */
  readonly #out: Buffer;
  readonly #shared: DenseMlp | undefined;
  /** Where places run rows of their own and share out experts or MLP segments. */
  readonly #gathered: GatheredRows | undefined;
  /** Where experts are spread: f32 [ranks][rows][expertsPerToken][hiddenStride]. */
  readonly #outs: Buffer | undefined;
  /** Who reads a row normalises it. */
  readonly #fusesNorm: boolean;
  /** Who multiplies a row by its experts' first matrices chooses them. */
  readonly #routes: boolean;

  constructor(
    readonly of: ExpertLayers,
    readonly rows: StageRows,
  ) {
    const { alike, gathers, sharedWidth, ranks } = of;
    const { stage, config, suffix } = alike;
    const { device, world, topology } = stage;
    const { hiddenSize, norm } = stage.config;
    const { role, scratch } = rows;
    const { numExperts, expertsPerToken: topK, width } = config;
    const buffer = (name: string, words: number): Buffer => scratch.createBuffer(`${role} ${name}`, words * 4);
    this.#logits = buffer('router logits', rows.rows * activationStride(numExperts));
    this.#ids = buffer('expert ids', rows.rows * topK);
    this.#weights = buffer('expert weights', rows.rows * topK);
    const most = gathers ? rows.allRows : rows.rows;
    this.#most = most;
    this.#rowCount = buffer('row count', 1);
    this.#pairs = buffer('expert pairs', role === 'prompt' ? numExperts * most : 1);
    this.#pairCounts = buffer('expert pair counts', numExperts);
    const apart = gathers || gatheringPlaces(topology) > 0;
    const isLone = !apart && !config.beside && fusesLoneNorm(device, norm, role, rows.rows, hiddenSize);
    // Where adapters differ one rank chooses for all.
    const asks = world.mixed && topology.spreadsExperts;
    this.#routes =
      isLone && !asks && fuses(device, expertLinearRoute) && canRoute(numExperts, hiddenSize, device.traits);
    this.#fusesNorm = this.#routes || (isLone && fuses(device, expertLinear));
    const hidden = this.#routes ? paddedName('expert and shared hidden', sharedWidth) : 'expert hidden';
    const hiddenWords = most * topK * activationStride(width) + (this.#routes ? activationStride(sharedWidth) : 0);
    this.#hidden = buffer(paddedName(hidden, width), hiddenWords);
    this.#out = buffer('expert out', most * topK * stage.hiddenStride);
    this.#shared =
      config.sharedWidth > 0
        ? new DenseMlp(stage, rows, {
            name: `shared down${suffix}`,
            width: sharedWidth,
            activation: config.activation,
            opens: config.sharedGate === true,
          })
        : undefined;
    if (apart) this.#gathered = this.#shared?.gathered ?? new GatheredRows(stage, rows);
    this.#allIds = gathers ? buffer('gathered expert ids', most * topK) : this.#ids;
    this.#outs = of.owners && buffer('expert outs', ranks.length * rows.rows * topK * stage.hiddenStride);
  }

  record(recorder: RankRecorder, half: Half<ExpertWeights>): void {
    const { stage } = this.of.alike;
    const { weights, input: x = this.rows.x, behind } = half;
    const norm = known(half.before, 'norm before experts');
    const input = this.#fusesNorm ? { x, norm } : { x: normedOf(this.rows) };
    this.#recordRouting(recorder, weights, norm, x);
    this.#recordRouted(recorder, weights, input);
    const shared = weights.shared && !this.#beside(weights) ? this.#shared : undefined;
    if (shared && weights.shared) {
      const held = { ...weights.shared, gate: weights.sharedGate };
      shared.recordSegments(recorder, held, shared.gathered ? { x: shared.gathered.x } : input);
    }
    const segments = shared?.down.exchange;
    const experts = this.#expertRegions();
    const routes = [
      ...(segments?.routes ?? []),
      ...(experts ? expertRoutes(stage.world.all, stage.topology.index, this.rows.role) : []),
    ];
    stage.world.exchangeRoutes(recorder, 'experts', routes, (route, side, step) =>
      known(route.cargo.kind === 'segments' ? segments?.regions : experts, 'part of the experts')(route, side, step),
    );
    shared?.down.recordSum(recorder, undefined);
    this.#recordCombine(recorder, weights, behind);
  }

  /** The rows' norm, and their experts with weights. */
  #recordRouting(recorder: RankRecorder, weights: ExpertWeights, norm: Norm, x: Buffer): void {
    const { stage, config } = this.of.alike;
    const { world, topology, hiddenStride } = stage;
    const { rows } = this;
    const { beside } = weights;
    const stride = activationStride(config.numExperts);
    recordLinear(recorder, rows, weights.router, {
      x,
      xStride: hiddenStride,
      norm: beside?.router ?? norm,
      outScale: beside ? stage.config.hiddenSize ** -0.5 : 1,
      bias: weights.routerBias,
      keepNormed: !this.#fusesNorm,
      out: this.#logits,
      outStride: stride,
    });
    if (this.#choosesIn(weights)) return;
    recorder.dispatch(
      moeRoute,
      { ...this.#choice, rows: rows.rows, stride, scaled: beside !== undefined },
      { ...this.#choiceTo(weights), expert_scale: beside?.expertScale, row_count: this.#rowCount },
    );
    // The router read others.
    if (beside) {
      const shape = { rows: rows.rows, width: stage.config.hiddenSize, stride: hiddenStride };
      recordNorm(recorder, norm, shape, x, normedOf(rows));
    }
    // Different adapters may break a near tie differently; then one rank routes for all.
    if (!world.mixed || !topology.spreadsExperts) return;
    const topK = config.expertsPerToken;
    const routes = routingRoutes(world.all, topology.index, rows.role);
    world.exchangeRoutes(recorder, 'routing', routes, ({ cargo }, _side, step) => {
      const { first, count } = world.rowRange(rows.role, cargo.group, step);
      return [rowsOf(this.#ids, topK, count, first), rowsOf(this.#weights, topK, count, first)];
    });
  }

  get #choice() {
    const { config, stage } = this.of.alike;
    const { numExperts: experts, expertsPerToken: topK, numGroups: groups, topkGroups, scoring, method } = config;
    const { normTopkProb, correctionBias } = config;
    const chosen = { experts, topK, groups, topkGroups, scoring, method };
    // Outputs go onto x by their weights alone.
    const routedScalingFactor = config.routedScalingFactor * stage.config.residualScale;
    return { ...chosen, normTopkProb, routedScalingFactor, correctionBias };
  }

  #choiceTo({ correctionBias }: ExpertWeights) {
    const chosen = { expert_ids: this.#ids, expert_weights: this.#weights };
    return { logits: this.#logits, correction_bias: correctionBias, ...chosen };
  }

  /** A lone row's experts are chosen where they are multiplied: in one dispatch, if the rank has any. */
  #choosesIn({ expertsGateUp }: ExpertWeights): boolean {
    return this.#routes && expertsGateUp?.shards.length === 1 && !isAdapted(this.rows, expertsGateUp);
  }

  /**
   * The shared experts of a lone row run with the routed ones, where the rank has all of both, in the same buffers, and the routed ones'
   * outputs go onto x as they are computed.
   */
  #beside(weights: ExpertWeights): SharedBeside | undefined {
    const { shared, sharedGate, expertsGateUp, expertsDown } = weights;
    if (!shared || sharedGate || this.#shared?.down.parts || !this.#choosesIn(weights)) return undefined;
    if (isAdapted(this.rows, shared.gateUp, shared.down)) return undefined;
    const firstUnit = besideAt(expertsGateUp, shared.gateUp);
    const downUnit = besideAt(expertsDown, shared.down);
    if (firstUnit === undefined || !shared.down || downUnit === undefined) return undefined;
    // Kernels of experts multiply exactly.
    if (decodesBytes(this.of.alike.stage.device.traits, shared.down.type)) return undefined;
    const { start, end, total, align } = shared.downSegments;
    const width = end - start;
    const { residualScale: outScale } = this.of.alike.stage.config;
    const down = { inFeatures: width, segments: { total, align }, firstUnit: downUnit, outScale };
    return this.#addsUp(weights, down) ? { gateUp: { width, firstUnit }, down } : undefined;
  }

  /** The outputs of this rank's experts, of its own rows or of those of all ranks; what `recordCombine` needs of them. */
  #recordRouted(recorder: RankRecorder, weights: ExpertWeights, input: Pick<Projection, 'x' | 'norm'>): void {
    const gathered = this.#gathered;
    const { gathers, alike } = this.of;
    const ids = { mine: this.#ids, all: this.#allIds, stride: alike.config.expertsPerToken };
    gathered?.recordGather(recorder, input.x, gathers ? ids : undefined);
    if (!gathered || !gathers) {
      this.#recordHidden(recorder, weights, input);
      if (!this.#addsUp(weights)) this.#recordDown(recorder, weights);
      return;
    }
    gathered.recordCount(recorder, this.#rowCount);
    recorder.viewing(gathered.rowsOf, () => {
      this.#recordHidden(recorder, weights, { x: gathered.x });
      this.#recordDown(recorder, weights);
    });
  }

  /**
   * The experts' outputs go onto x as they are computed: where they aren't spread, of generated rows on a GPU, all experts in one buffer, and
   * room for their sums.
   */
  #addsUp({ expertsDown: down }: ExpertWeights, shared?: SharedDown): boolean {
    const { device } = this.of.alike.stage;
    if (this.#outs || this.of.alike.config.beside || this.rows.role === 'prompt' || down?.shards.length !== 1)
      return false;
    if (isAdapted(this.rows, down)) return false;
    return fuses(device, expertLinearCombine) && canCombine(this.#sumOf(down.type, shared), device.traits);
  }

  /** Where experts are spread: every rank that runs a row needs the outputs of all experts for it. */
  #expertRegions(): RegionsOf | undefined {
    const outs = this.#outs;
    if (!outs) return undefined;
    const { alike, ranks } = this.of;
    const { stage, config } = alike;
    const { role, rows: room } = this.rows;
    const out = this.#out;
    const stride = config.expertsPerToken * stage.hiddenStride;
    return ({ from, cargo }, side, step) => {
      const { first, count } = stage.world.rowRange(role, cargo.group, step);
      if (side === 'receive') return [rowsOf(outs, stride, count, ranks.indexOf(from) * room + first)];
      const all = this.#gathered;
      return [all ? all.region(out, stride, cargo.group, step) : rowsOf(out, stride, count, first)];
    };
  }

  /** The weighted sum of the routed experts, onto x, or normalised first. */
  #recordCombine(recorder: RankRecorder, weights: ExpertWeights, behind: Norm | undefined): void {
    const { alike, ranks, owners } = this.of;
    const { stage, config } = alike;
    const outs = this.#outs;
    const x = behind ? halfOf(this.rows, stage.config.hiddenSize, stage.hiddenStride) : this.rows.x;
    if (this.#addsUp(weights)) return this.#recordSum(recorder, weights);
    recorder.dispatch(
      moeCombine,
      {
        rows: this.rows.rows,
        topK: config.expertsPerToken,
        width: stage.config.hiddenSize,
        inStride: stage.hiddenStride,
        stride: stage.hiddenStride,
        apart: behind !== undefined,
        ...(outs && { ranks: ranks.length, experts: config.numExperts }),
      },
      {
        expert_out: outs ?? this.#out,
        expert_weights: this.#weights,
        ...(outs && { expert_ids: this.#ids, owners }),
        x,
      },
    );
    if (behind) this.rows.residual.add(recorder, x, behind);
  }

  /** silu(gate x) * up x of each row's experts. `x`: f32 [rows][hiddenStride], normalised or with the norm that is fused. */
  #recordHidden(recorder: RankRecorder, weights: ExpertWeights, { x, norm }: Pick<Projection, 'x' | 'norm'>): void {
    const { stage, config } = this.of.alike;
    const { expertsPerToken: topK, numExperts, width, clamped, activation } = config;
    if (this.rows.role === 'prompt') {
      recorder.dispatch(
        moeSort,
        { rows: this.#most, topK, experts: numExperts },
        { expert_ids: this.#allIds, row_count: this.#rowCount, pairs: this.#pairs, pair_counts: this.#pairCounts },
      );
    }
    this.#recordLinear(recorder, weights, weights.expertsGateUp, {
      x,
      xStride: stage.hiddenStride,
      xPerSlot: false,
      inFeatures: stage.config.hiddenSize,
      out: this.#hidden,
      outStride: activationStride(width),
      outFeatures: width,
      epilogue: 'swiglu',
      clamped,
      activation,
      bias: weights.gateUpBias,
      norm,
    });
  }

  /** Down, to `#out`; after `#recordHidden`. */
  #recordDown(recorder: RankRecorder, weights: ExpertWeights): void {
    const { stage, config } = this.of.alike;
    const { width } = config;
    this.#recordLinear(recorder, weights, weights.expertsDown, {
      x: this.#hidden,
      xStride: activationStride(width),
      xPerSlot: true,
      inFeatures: width,
      out: this.#out,
      outStride: stage.hiddenStride,
      outFeatures: stage.config.hiddenSize,
      epilogue: 'none',
      bias: weights.downBias,
    });
  }

  /** Down, and the weighted sum of a row's experts, onto x; after `#recordHidden`. */
  #recordSum(recorder: RankRecorder, weights: ExpertWeights): void {
    const { expertsDown: down, downBias: bias } = weights;
    const { type, shards } = known(down, "experts' down projection");
    const [{ weight, scale }] = shards as [Matrix['shards'][0]];
    const routed = { expert_ids: this.#ids, expert_weights: this.#weights };
    const tensors = { x: this.#hidden, weight, scale, ...routed, bias, out: this.rows.x };
    recorder.dispatch(expertLinearCombine, this.#sumOf(type, this.#beside(weights)?.down), tensors);
  }

  #sumOf(type: MatrixType, shared?: SharedDown) {
    const { stage, config } = this.of.alike;
    const { expertsPerToken: topK, numExperts: experts, width, bias = false } = config;
    const out = { outFeatures: stage.config.hiddenSize, outStride: stage.hiddenStride };
    const shape = { inFeatures: width, xStride: activationStride(width), ...out };
    return { rows: this.#most, topK, experts, type, bias, shared, ...shape };
  }

  /** With what rows' adapters add as biases of theirs. */
  #withAdapters(
    recorder: RankRecorder,
    matrix: Matrix,
    io: ExpertProjection,
    here: { readonly topK: number; readonly first: number; readonly count: number },
    outFeatures: number,
  ): ExpertProjection {
    const { adapters } = (this.of.gathers && this.#gathered) || this.rows;
    if (!adapters || !isAdapted(this.rows, matrix)) return io;
    const { role, normed } = this.rows;
    const buffers = { role, rows: this.#most, normed, adapters };
    const { xStride, inFeatures, out, outStride, xPerSlot, norm } = io;
    const { x } = settled(recorder, buffers, { inFeatures }, { x: io.x, xStride, norm, out, outStride });
    const own = { x, xStride, inFeatures, outFeatures, experts: { ...here, xPerSlot }, ids: this.#allIds };
    const bias = adapters.loaded()?.biasOfExperts?.(recorder, buffers, matrix.name, { ...own, bias: io.bias });
    return { ...io, x, norm: undefined, bias, rowBias: true };
  }

  #recordLinear(
    recorder: RankRecorder,
    weights: ExpertWeights,
    matrix: Matrix | undefined,
    of: ExpertProjection,
  ): void {
    if (!matrix) return;
    const [first, end] = weights.experts;
    const { numExperts, expertsPerToken } = this.of.alike.config;
    const rowsPerExpert = matrix.outFeatures / (end - first);
    const here = { topK: expertsPerToken, first, count: end - first };
    const { x, out, norm, bias, ...shape } = this.#withAdapters(recorder, matrix, of, here, rowsPerExpert);
    for (const shard of matrix.shards) {
      const { biasFirst, expertCount, half } = expertsOf(matrix, shard, rowsPerExpert);
      const problem = {
        ...shape,
        ...(half && { epilogue: half }),
        rows: this.#most,
        topK: expertsPerToken,
        experts: numExperts,
        type: shard.type,
        expertFirst: first + biasFirst,
        expertCount,
        bias: bias !== undefined,
        biasFirst,
      };
      const tensors = { x, weight: shard.weight, scale: shard.scale, bias, out };
      if (norm && this.#choosesIn(weights)) {
        const { epilogue: _e, xPerSlot: _x, rows: _r, ...row } = problem;
        const route = { ...row, ...this.#choice, normEps: norm.config.eps, shared: this.#beside(weights)?.gateUp };
        const choice = this.#choiceTo(weights);
        recorder.dispatch(expertLinearRoute, route, { ...tensors, norm_weight: norm.weight, ...choice });
      } else if (this.rows.role === 'prompt') {
        recorder.dispatch(expertLinearTiled, problem, {
          ...tensors,
          pairs: this.#pairs,
          pair_counts: this.#pairCounts,
        });
      } else {
        recorder.dispatch(
          expertLinear,
          { ...problem, ...(norm && { normEps: norm.config.eps }) },
          { ...tensors, expert_ids: this.#allIds, norm_weight: norm?.weight },
        );
      }
    }
  }
}

/** What a shard holds of the experts. Where gate and up are of two types all gates stand before all ups. */
function expertsOf(
  { type, outFeatures, shards }: Matrix,
  { firstRow, rows }: MatrixShard,
  rowsPerExpert: number,
): { readonly biasFirst: number; readonly expertCount: number; readonly half?: 'gate' | 'up' } {
  if (shards.every((shard) => shard.type === type))
    return { biasFirst: firstRow / rowsPerExpert, expertCount: rows / rowsPerExpert };
  const each = rowsPerExpert / 2;
  const first = (firstRow % (outFeatures / 2)) / each;
  return { biasFirst: first, expertCount: rows / each, half: firstRow < outFeatures / 2 ? 'gate' : 'up' };
}
