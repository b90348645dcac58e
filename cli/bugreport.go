package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
)

func (p commands) bugReportCommand() *cobra.Command {
	var file string
	var yes bool
	c := &cobra.Command{
		Use:   "bugreport",
		Short: "Write an archive of what helps to find out what is wrong",
		Long: `Write an archive, one .tar.gz, of what helps others to find out what is wrong: logs of kithd and its Kubernetes, what the
doctor finds, versions, status, Kith's own objects, nodes and pods in summary, metrics, profiles when profiling is on, and
facts of the kernel and the network. What is in it is listed before it is written, and a terminal asks.

Not in it are Secrets, ConfigMaps, environments, arguments and volumes of pods, kubeconfigs and keys; what looks like a token
or a password in a log is taken out. Names and IP addresses are in it: read it before you give it to others. It is for you
alone to read (mode 0600). Without a running kithd it has what this machine says without.`,
		Example: "  kith bugreport\n  kith bugreport --yes -o /tmp/kith.tar.gz",
		Args:    program.Between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if !yes && !p.Asks() {
				return &api.Error{Code: api.CodeConfirm, Message: "nothing was written", Reason: "there is no terminal to ask at", Do: "`kith bugreport --yes` writes it without asking"}
			}
			archive, err := p.report(c.Context())
			if err != nil {
				return err
			}
			files, err := api.BugReportFiles(bytes.NewReader(archive))
			if err != nil {
				return err
			}
			if file == "" {
				file = api.BugReportName(p.Now())
			}
			for _, f := range files {
				fmt.Fprintf(p.Err, "%9s  %s\n", bytesOf(f.Size), screen.Clean(f.Name))
			}
			if !yes {
				if err := p.Sure(c.Context(), fmt.Sprintf("Write these %d files, %s compressed, to %s?", len(files), bytesOf(int64(len(archive))), file)); err != nil {
					return err
				}
			}
			if err := writeNew(file, archive); err != nil {
				return &api.Error{Code: api.CodeInvalid, Message: "the bug report cannot be written", Reason: err.Error(), Do: "name another file with -o", Field: "output"}
			}
			fmt.Fprintln(p.Out, file)
			return nil
		},
	}
	c.Flags().StringVarP(&file, "output", "o", "", "file to write; it must not be there yet (default kith-bugreport-TIME.tar.gz here)")
	c.Flags().BoolVar(&yes, "yes", false, "write it without asking")
	return c
}

// maxReport bounds what is taken of a report, in bytes; kithd makes smaller ones.
const maxReport = 24 << 20

// report has kithd make the report or, when none answers, its program what can be made without.
func (p commands) report(ctx context.Context) ([]byte, error) {
	kithd := p.Client()
	defer kithd.Close()
	defer p.Progress("the report is made").Stop()
	archive, err := kithd.BugReport(ctx)
	if err == nil || !unreachable(err) {
		return archive, err
	}
	var b bytes.Buffer
	err = p.runKithd(ctx, maxReport, func(out io.Reader) error { _, err := b.ReadFrom(out); return err }, "bugreport", "--why="+err.Error())
	return b.Bytes(), err
}

// unreachable reports whether no kithd answers this user.
func unreachable(err error) bool {
	return errors.Is(err, &api.Error{Code: api.CodeUnavailable}) || errors.Is(err, &api.Error{Code: api.CodeForbidden})
}

// writeNew writes a file that is not there yet, for its owner alone: nobody else reads it, and nothing is written over.
func writeNew(file string, text []byte) error {
	f, err := os.OpenFile(filepath.Clean(file), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
	}
	return err
}

func bytesOf(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
