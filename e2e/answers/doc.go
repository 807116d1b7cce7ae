// Package answers tests that the kernel's own answers, ICMP errors and TCP segments, do not leave by a network that nobody chose,
// whatever ends: the program, Heddle, or a device for a while. Captures count every packet there. Tests only.
package answers
