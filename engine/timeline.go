package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"kith.dev/core/base/timeline"
)

// serverLog is where kithd has the log of the Kubernetes that it runs.
const serverLog = "/var/lib/kith/k8s/server.log"

func timelineCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "timeline [LOG]...",
		Short: "Draw how long the parts of the last start took, from the logs",
		Long: `Draw how long the parts of the last start took, from the logs of kith-k8s and of kithd; - is standard input.
Without a LOG it is ` + serverLog + `.`,
		Example: "  kith-k8s timeline\n  journalctl -u kithd -o cat | kith-k8s timeline - " + serverLog,
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 0 {
				files = []string{serverLog}
			}
			var starts []timeline.Start
			for _, name := range files {
				start, err := lastStart(cmd.InOrStdin(), name)
				if err != nil {
					return err
				}
				starts = append(starts, start)
			}
			return timeline.Draw(cmd.OutOrStdout(), starts...)
		},
	}
}

func lastStart(input io.Reader, name string) (timeline.Start, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return timeline.Start{}, err
		}
		defer f.Close()
		input = f
	}
	start, err := timeline.Read(input)
	if err == nil && len(start.Parts) == 0 {
		err = fmt.Errorf("it tells of no start of kithd or kith-k8s, or of one before this version")
	}
	if err != nil {
		return start, fmt.Errorf("log %s: %w", name, err)
	}
	return start, nil
}
