package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"heddle/internal/errhint"
)

// Every is the length of a schedule's unit, in packets or in time. The zero value never switches.
type Every struct {
	Packets int
	Period  time.Duration
	Auto    bool // Period is the shortest, and may be lengthened; see [Schedule.Lengthen]
}

// AutoPeriod is the shortest unit of "auto": shorter ones hardly add privacy (CoMPS, section 6).
const AutoPeriod = 100 * time.Millisecond

// The shortest and longest units that ParseEvery accepts.
const (
	MinPeriod  = time.Millisecond
	MaxPeriod  = time.Hour
	MaxPackets = 1_000_000
)

// ParseEvery parses "50p" (packets sent), "100ms" (time), "auto" or "none".
func ParseEvery(text string) (Every, error) {
	bad := func(why string) (Every, error) {
		return Every{}, &errhint.Error{What: fmt.Sprintf("every %q", text), Why: why, Hint: "write packets as 50p, a time as 100ms, auto or none"}
	}
	switch text {
	case "none":
		return Every{}, nil
	case "auto":
		return Every{Period: AutoPeriod, Auto: true}, nil
	}
	if digits, found := strings.CutSuffix(text, "p"); found {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return bad("not a number of packets")
		}
		if n < 1 || n > MaxPackets {
			return bad(fmt.Sprintf("packets must be 1 to %d", MaxPackets))
		}
		return Every{Packets: n}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return bad("neither packets nor a time")
	}
	if d < MinPeriod || d > MaxPeriod {
		return bad(fmt.Sprintf("a time must be %v to %v", MinPeriod, MaxPeriod))
	}
	return Every{Period: d}, nil
}

// String returns the format of [ParseEvery].
func (e Every) String() string {
	switch {
	case e.Auto:
		return "auto"
	case e.Packets > 0:
		return strconv.Itoa(e.Packets) + "p"
	case e.Period > 0:
		return e.Period.String()
	}
	return "none"
}
