import { sum } from '../../../base/lists.js';
import { alignUp } from '../../../base/math.js';
import type { MlaConfig } from '../../config/model_config.js';
import { attentionSegments, type HeldSegments, holdSegments, type Span, spanLength } from '../../shape.js';
import type { MlaNames } from '../../config/tensor_names.js';
import {
  type AbsorbedSpec,
  allRows,
  type Loaded,
  type MatrixSpec,
  type PackedAs,
  paddedRows,
  type Part,
  someRows,
  type VectorSpec,
  zeroRows,
} from '../../weights/weight_map.js';
import type { Bytes, CutBytes, LayerContext } from '../layer_weights.js';
import { pairsInHalves } from './rope_table.js';

/** Rows of a tile: parts that are read apart don't share one. */
const PAD = 32;
/** Elements of a vector's parts that are bound apart. */
const BOUND = 64;

/** Which tensors make a rank's slice of latent attention. Undefined: the model has none, or the rank none of it. */
export interface MlaSpecs {
  readonly kind: 'mla';
  /** By the model's numbers; may be empty where the rank holds attention segments, which MLA has 8 of whatever its heads. */
  readonly queryHeads: Span;
  /**
   * With any attention segment: q's rows of the heads, where it has some, or all of its bottleneck's (padded to 32 rows), then all of the
   * latent's and of the rotary key's.
   */
  readonly project: MatrixSpec | undefined;
  /** The row of `project`, and the element of a projected row, where the latent and the rotary key start. */
  readonly latentOffset: number;
  readonly projectBias: VectorSpec | undefined;
  readonly qUp: MatrixSpec | undefined;
  /** Of q's bottleneck, where it has heads with one, and then of the latent. */
  readonly norms: VectorSpec | undefined;
  /** The element of `norms` where the latent's starts: it can be bound by itself. */
  readonly latentNorm: number;
  readonly kvUp: AbsorbedSpec | undefined;
  readonly o: MatrixSpec | undefined;
  /** The segments of o's contraction that it holds, also where they are none (count 0) or have no heads. */
  readonly oSegments: HeldSegments;
  /** For whoever adds up all segments. */
  readonly oBias: VectorSpec | undefined;
  readonly config: MlaConfig;
}

export type MlaWeights = Loaded<MlaSpecs>;

/** Heads of a latent cache are never arranged freely. */
const onlyRun = (runs: readonly Span[]): Span => runs[0] ?? [0, 0];

export function mlaSpecs(context: LayerContext, config: MlaConfig, names: MlaNames): MlaSpecs {
  const { hiddenSize, slice } = context;
  const heads = onlyRun(slice.heads);
  const queryHeads = onlyRun(slice.queryHeads);
  const { qLoraRank, kvLoraRank, qkNopeHeadDim, qkRopeHeadDim, vHeadDim } = config;
  const oSegments = holdSegments(attentionSegments(config), heads);
  const count = spanLength(queryHeads);
  const headRows = (width: number): Span => [queryHeads[0] * width, queryHeads[1] * width];
  const qOrder = rotaryOrder(config, qkNopeHeadDim);
  const kvOrder = rotaryOrder(config, kvLoraRank);
  const qWidth = qkNopeHeadDim + qkRopeHeadDim;
  const kvWidth = qkNopeHeadDim + vHeadDim;
  const q = (tensor: string, more?: Partial<Part>): Part =>
    someRows(tensor, config.heads * qWidth, headRows(qWidth), { order: qOrder, ...more });
  // Segments without heads still need the latent: the rank writes it into its cache.
  const qParts =
    count === 0
      ? []
      : [qLoraRank === null ? q(names.q, { padTo: PAD }) : allRows(names.qDown, qLoraRank, { padTo: PAD })];
  const kvDown = allRows(names.kvDown, kvLoraRank + qkRopeHeadDim, { order: kvOrder });
  // Without a bottleneck q has no bias, but its rows keep their place.
  const qBias = qLoraRank === null ? qParts.map(({ rows }) => zeroRows(rows, { padTo: PAD })) : qParts;
  const latent = spanLength(heads) > 0;
  const bottleneck = count > 0 && qLoraRank !== null;
  const qNorm = bottleneck ? [allRows(`${names.qNorm}.weight`, qLoraRank, { padTo: BOUND })] : [];
  const latentNorm = allRows(`${names.kvNorm}.weight`, kvLoraRank);
  const half = (what: string, rows: number, columns: number): PackedAs => ({
    name: context.name(`kv_up ${what}`),
    rows: count * rows,
    columns,
  });
  return {
    kind: 'mla',
    queryHeads,
    project: latent ? context.matrix('project', hiddenSize, [...qParts, kvDown]) : undefined,
    latentOffset: sum(qParts.map(paddedRows)),
    projectBias: latent && config.bias ? context.bias('project_bias', [...qBias, kvDown]) : undefined,
    qUp: bottleneck ? context.matrix('q_up', qLoraRank, [q(names.qUp)]) : undefined,
    norms: latent ? context.vector('norms', [...qNorm, latentNorm]) : undefined,
    latentNorm: sum(qNorm.map(paddedRows)),
    kvUp:
      count > 0
        ? context.matrix('kv_up', kvLoraRank, [someRows(names.kvUp, config.heads * kvWidth, headRows(kvWidth))], {
            // Blocks along the rows of a transposed half would round other groups of weights than the checkpoint's rows have.
            precision: 'unquantised',
            packedAs: [half('absorbed', kvLoraRank, qkNopeHeadDim), half('values', alignUp(vHeadDim, PAD), kvLoraRank)],
          })
        : undefined,
    o: count > 0 ? context.output('o', names.o, oSegments) : undefined,
    oSegments,
    oBias: config.bias ? context.whole('o_bias', `${names.o}.bias`, hiddenSize) : undefined,
    config,
  };
}

/** Of every group of `plain` rows followed by the rotary ones. Undefined where the checkpoint has halves already. */
const rotaryOrder = ({ rope, qkRopeHeadDim }: MlaConfig, plain: number): number[] | undefined =>
  rope.interleaved ? pairsInHalves(plain + qkRopeHeadDim, plain, qkRopeHeadDim) : undefined;

export function mlaBytes(specs: MlaSpecs, bytes: Bytes): CutBytes {
  const { project, projectBias, qUp, norms, kvUp, o, oBias, config } = specs;
  // Without a bottleneck the first projection's q rows are cut by head, and only the latent's are shared.
  const whole =
    config.qLoraRank === null ? bytes(lastPart(project), lastPart(projectBias)) : bytes(project, projectBias);
  return {
    cut: bytes(project, projectBias, qUp, kvUp, o) - whole,
    shared: whole + bytes(norms, oBias),
  };
}

const lastPart = <S extends MatrixSpec | VectorSpec>(spec: S | undefined): S | undefined =>
  spec && { ...spec, parts: spec.parts.slice(-1) };
