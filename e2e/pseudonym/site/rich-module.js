export const prime = 17
