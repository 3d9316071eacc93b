import { make, makeButton } from '../../src/app/shared/dom.js';
import type { PeerAsks } from '../../src/index.js';

/** Asks whether the other page shows the same code, in `place`. */
export function askCode(place: HTMLElement, { code, name }: PeerAsks): Promise<boolean> {
  return new Promise((resolve) => {
    const decide = (answer: boolean) => (): void => {
      place.replaceChildren();
      resolve(answer);
    };
    const yes = makeButton('', 'It shows the same', decide(true));
    place.replaceChildren(
      make('p', '', 'Does the other page, ', make('strong', '', name), ', show this code? Ask whoever sits there.'),
      make('p', 'peer-code', code),
      make('div', 'actions', yes, makeButton('quiet', "No, don't join", decide(false))),
    );
    yes.focus();
  });
}
