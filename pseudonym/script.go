package pseudonym

import "unicode"

// together are the scripts that one language mixes (Unicode Technical Standard 39, section 5.2, level "highly restrictive").
var together = [][]*unicode.RangeTable{
	{unicode.Latin, unicode.Han, unicode.Hiragana, unicode.Katakana},
	{unicode.Latin, unicode.Han, unicode.Bopomofo},
	{unicode.Latin, unicode.Han, unicode.Hangul},
}

// lookalikes are the letters of Cyrillic and Greek that look like Latin ones, in lower case.
var lookalikes = map[rune]bool{}

func init() {
	for _, r := range "аеорсухіјѕһԁԛԝӏвгкмнтпоαορνκιτυωχϲϳ" {
		lookalikes[r] = true
	}
}

// mixes reports whether a label has letters of scripts that no language mixes, or nothing but letters that look like Latin ones.
func mixes(label string) bool {
	letters, alike := 0, 0
	for _, r := range label {
		if unicode.IsLetter(r) {
			letters++
			if lookalikes[r] {
				alike++
			}
		}
	}
	if letters > 0 && alike == letters {
		return true
	}
	for _, one := range unicode.Scripts {
		if only(label, one) {
			return false
		}
	}
	for _, group := range together {
		if only(label, group...) {
			return false
		}
	}
	return true
}

// only reports whether all letters of a label are of these scripts. Digits and hyphens belong to all.
func only(label string, scripts ...*unicode.RangeTable) bool {
	for _, r := range label {
		if unicode.IsLetter(r) && !unicode.In(r, scripts...) && !unicode.Is(unicode.Common, r) && !unicode.Is(unicode.Inherited, r) {
			return false
		}
	}
	return true
}
