package link

import "fmt"

// Code is why one side ended a link with rst.
type Code byte

const (
	Closed      Code = 0
	BrokenRules Code = 1
	Unreachable Code = 2
	Forbidden   Code = 3
	TooMany     Code = 4
	Stopping    Code = 5
)

func (c Code) String() string {
	if int(c) < len(codes) {
		return codes[c]
	}
	return fmt.Sprintf("code %d", byte(c))
}

var codes = [...]string{"it was closed", "the rules were broken", "the target cannot be reached", "the target is forbidden", "there are too many links",
	"the bridge stops"}

// ResetError says that one side ended the link with rst.
type ResetError struct {
	Code   Code
	Remote bool // the other side did
}

func (e *ResetError) Error() string {
	if e.Remote {
		return "the other side ended the disguised link: " + e.Code.String()
	}
	return "the disguised link ended: " + e.Code.String()
}

// HintText returns what to do about it.
func (e *ResetError) HintText() string {
	switch {
	case !e.Remote:
		return ""
	case e.Code == Forbidden:
		return "the bridge's configuration says which targets are allowed"
	case e.Code == BrokenRules:
		return "use the same version of heddle at both ends"
	case e.Code == Unreachable:
		return "check that the target runs and that the bridge reaches it"
	case e.Code == TooMany:
		return "try again later, or use another bridge"
	}
	return ""
}
