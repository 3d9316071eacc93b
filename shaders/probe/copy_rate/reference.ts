export const copyRateReference = (start: ArrayLike<number>): number[] => Array.from(start);
