/** Hues that tell ranks apart, neighbours far from each other; text always names the rank besides. */
const HUES = [255, 50, 155, 325, 95, 205, 20, 290];

/** Gives a rank's colour to whatever is drawn inside the element. */
export function colourAs(node: HTMLElement, rank: number): void {
  node.style.setProperty('--hue', String(HUES[rank % HUES.length]));
}
