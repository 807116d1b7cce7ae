package defence

// pieces is the paper's strategy: one to three pieces, each padded to a multiple of 512 bytes.
type pieces struct{}

const pieceUnit = 512

func (pieces) Most() int { return 3 }

func (pieces) Padded(n int) int { return (n + pieceUnit - 1) / pieceUnit * pieceUnit }

func (pieces) Claim() string {
	return "each object shows as one to three pieces, each a multiple of 512 bytes, and a page shows how many objects it has"
}
