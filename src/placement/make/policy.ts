import { didYouMean, usageError } from '../../base/errors.js';
import { axesFeatures, misfit } from '../check/capabilities.js';

/** How a stage's ranks share its work; `pipeline` cuts the layers into stages besides. */
export interface Policy {
  /** As plans and messages name it. */
  readonly name: string;
  readonly pipeline: boolean;
  readonly inner:
    | 'single'
    | 'tp'
    | 'sp'
    | 'tp+sp'
    | 'ep'
    | 'token'
    | 'tp x token'
    | 'token x sp'
    | 'tp x token x sp'
    | 'adp';
}

/** Every policy by its own name. */
export const POLICIES: readonly string[] = [
  'single',
  'tp',
  'sp',
  'tp+sp',
  'pp',
  'ep',
  'token',
  'tp x token',
  'token x sp',
  'tp x token x sp',
  'adp',
  'pp x tp',
  'pp x sp',
  'pp x tp+sp',
  'pp x ep',
  'pp x token',
  'pp x token x sp',
];

const AXES = ['pp', 'tp', 'sp', 'ep', 'token', 'adp'] as const;
export type Axis = (typeof AXES)[number];

/**
 * Reads a policy's name: axes in any order, joined by 'x', '*', '+' or a comma. 'tp x ep' is 'tp' and 'sp x ep' is 'ep': tp spreads the
 * experts anyway, and ep the lanes; 'adp x ep' is 'adp'. Such names still ask for a model with experts (`axes`).
 * @throws SplitkvError `usage` for a name that is none.
 */
export function parsePolicy(name: string): Policy & { readonly axes: ReadonlySet<Axis> } {
  const words = name
    .trim()
    .toLowerCase()
    .split(/[\s,+*x×]+/);
  if (words.length === 1 && words[0] === 'single') {
    return { name: 'single', pipeline: false, inner: 'single', axes: new Set() };
  }
  const axes = new Set<Axis>();
  for (const word of words) {
    const axis = AXES.find((candidate) => candidate === word);
    if (axis === undefined || axes.has(axis)) {
      throw usageError(`plan '${name}': use ${POLICIES.join(', ')}.${didYouMean(name, POLICIES)}`);
    }
    axes.add(axis);
  }
  const why = misfit(axesFeatures(axes));
  if (why !== undefined) throw usageError(`plan '${name}': ${why}`);
  const inner = axes.has('adp')
    ? 'adp'
    : axes.has('token')
      ? axes.has('tp')
        ? axes.has('sp')
          ? 'tp x token x sp'
          : 'tp x token'
        : axes.has('sp')
          ? 'token x sp'
          : 'token'
      : axes.has('tp')
        ? axes.has('sp')
          ? 'tp+sp'
          : 'tp'
        : axes.has('ep')
          ? 'ep'
          : axes.has('sp')
            ? 'sp'
            : 'single';
  const pipeline = axes.has('pp');
  return {
    name: !pipeline ? inner : inner === 'single' ? 'pp' : `pp x ${inner}`,
    pipeline,
    inner,
    axes,
  };
}
