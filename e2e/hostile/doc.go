// Package hostile tests the heddle binary while one of its networks lies: it forges answers of the nameserver and ICMP errors,
// replays packets and delays them. Captures show where packets went. Tests only.
package hostile
