import { ARRANGED, POLICIES, readPolicyName } from '../../src/placement/index.js';
import { make } from '../../src/app/shared/dom.js';
import { element } from '../shared/elements.js';
import { DEGREES } from './parameters.js';

const RANKS = ['1', '2', '4', '8'];
const PLANS = ['auto', ...POLICIES.filter((policy) => policy !== 'single'), ...ARRANGED];

/**
 * The form that loads the page again with other ranks: a plain GET. It begins with what the address says and keeps the
 * address's other parameters, but for degrees, which would name a plan beside the one that is chosen.
 */
export function fillPlacementForm(query: URLSearchParams): void {
  const form = element('placement', HTMLFormElement);
  fill(element('placement-ranks', HTMLSelectElement), RANKS, query.get('ranks') ?? '1');
  fill(element('placement-plan', HTMLSelectElement), PLANS, planName(query.get('plan') ?? 'auto'));
  for (const [name, value] of query) {
    if (['ranks', 'plan', ...DEGREES].includes(name)) continue;
    const input = make('input', '');
    Object.assign(input, { type: 'hidden', name, value });
    form.append(input);
  }
}

/** As the list has it: 'tp,sp' and 'tp sp' (which a plus sign in an address becomes) are 'tp+sp'. */
function planName(text: string): string {
  try {
    return readPolicyName(text).name;
  } catch {
    return text; // 'auto', or a name that the load will refuse
  }
}

/** Two GPUs can be two ranks. */
export function offerRanks(value: string): void {
  const select = element('placement-ranks', HTMLSelectElement);
  if (![...select.options].some((option) => option.value === value)) select.add(new Option(value, value));
}

function fill(select: HTMLSelectElement, values: readonly string[], chosen: string): void {
  const all = values.includes(chosen) ? values : [...values, chosen];
  select.replaceChildren(...all.map((value) => new Option(value, value, value === chosen, value === chosen)));
}
