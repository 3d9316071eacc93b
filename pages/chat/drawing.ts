import { makeButton, name } from '../../src/app/shared/dom.js';
import { drawing } from '../../src/app/chat/view/icons.js';

/** Paths on a grid of 24, drawn as lines, as the element's are. */
const PATHS = {
  side: 'M4 6h16M4 12h16M4 18h16',
  new: 'M12 5v14M5 12h14',
  share: 'M12 15V4M8 8l4-4 4 4M5 13v7h14v-7',
  help: 'M9 9.5a3 3 0 1 1 4.2 2.7c-.9.4-1.2 1-1.2 1.8M12 17.5v.5M12 3a9 9 0 1 0 0 18 9 9 0 1 0 0-18z',
  rename: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  delete: 'M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13M10 11v5M14 11v5',
} as const;
export type DrawingName = keyof typeof PATHS;

export const pageIcon = (of: DrawingName): SVGElement => drawing(PATHS[of]);

/** A button with a drawing only, and what it does. */
export function tool(of: DrawingName, does: string, press: () => unknown): HTMLButtonElement {
  const button = makeButton('tool', pageIcon(of), press);
  name(button, does);
  return button;
}
