package defence

// siteConstant makes all pages of a site look alike: each object is fetched in units of one size, and after each page come units without
// content, until it has as many as the page of the site that needed most.
type siteConstant struct{}

const constantUnit = 32 << 10 // bytes, with the description of the object

func (siteConstant) Most() int { return 1 }

func (siteConstant) Padded(n int) int { return max(n, constantUnit) }

func (siteConstant) Unit() int { return constantUnit }

func (siteConstant) Claim() string {
	return "each page shows as the same number of units of 32 KiB, but one that needs more than any before, and what it needed when somebody opens it for the first time"
}
