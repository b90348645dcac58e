package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
)

// dryRunFlag gives c the flag by which it only says what it would do.
func dryRunFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "dry-run", false, "say what it would do, or why not, and do nothing")
}

// would says what a command would do without --dry-run, a line for each effect.
func (p *program) would(effects ...string) {
	if effects = nonEmpty(effects...); len(effects) == 0 {
		fmt.Fprintln(p.Out, "nothing would change")
		return
	}
	fmt.Fprintln(p.Out, "nothing was done; without --dry-run:")
	for _, effect := range effects {
		fmt.Fprintln(p.Out, "- "+strings.ReplaceAll(screen.CleanLines(effect), "\n", "\n  "))
	}
}
