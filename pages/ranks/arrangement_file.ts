import { SplitkvError } from '../../src/base/errors.js';
import type { PlanFile } from '../../src/placement/index.js';
import { arrangementMap } from './arrangement_map.js';
import { ArrangementView } from './arrangement_view.js';
import { make } from '../../src/app/shared/dom.js';
import { element } from '../shared/elements.js';

/** A plan or an arrangement that the address names: a URL that ends with .json. @throws SplitkvError as `parsePlanFile`, or `io` */
export async function fetchPlanFile(url: string): Promise<PlanFile> {
  const response = await fetch(url);
  if (!response.ok) throw new SplitkvError('io', `plan ${url}: ${response.status} ${response.statusText}`);
  const { parsePlanFile } = await import('../../src/placement/plan/parse_plan.js');
  return parsePlanFile(await response.text(), url);
}

/** Shows the arrangement of a file that is chosen, without running it. */
export function listenForArrangements(): void {
  const input = element('arrangement-input', HTMLInputElement);
  const error = element('arrangement-error', HTMLParagraphElement);
  const view = new ArrangementView();
  const title = make('h3', '');
  input.addEventListener('change', () => {
    const [file] = input.files ?? [];
    if (file) void show(file);
  });

  async function show(file: File): Promise<void> {
    try {
      const { parseArrangementFile } = await import('../../src/arrangement/files.js');
      const { model, placement, ranks, loads } = parseArrangementFile(await file.text(), file.name);
      error.textContent = '';
      title.textContent = `An arrangement for ${model}`;
      element('arrangement-file', HTMLDivElement).append(title, view.node);
      view.show(arrangementMap(placement, ranks, loads), loads !== undefined);
    } catch (reason) {
      title.remove();
      view.node.remove();
      error.textContent = reason instanceof Error ? reason.message : String(reason);
    }
  }
}
