//go:build lab && soak

package e2e

func init() {
	troubles = []officeStep{
		{"a restart ends no pod", (*office).restarts},
		{"a node loses power and comes back", (*office).power},
		{"so does the server", (*office).serverPower},
		{"a node is drained", (*office).drain},
		{"a node is deleted, and joins again", (*office).deleted},
	}
}
