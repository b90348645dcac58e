package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p *program) kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [ARGUMENT]...",
		Short: "Run kubectl against this laptop's Kubernetes",
		Long: `Run kubectl against this laptop's Kubernetes, whatever your own kubeconfig says: nothing needs to be set up. While the
laptop is tethered, it asks the company's. It is your kubectl, if you have one, else the one that Kith brings; all
arguments are kubectl's. For other programs see kith kubeconfig and kith shell.`,
		Example:            "  kith kubectl get nodes\n  kith kubectl -n shop logs -f deploy/web",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			program, first, err := kubectlProgram()
			if err != nil {
				return err
			}
			return p.withKubeconfig(c, func(_, file string) *exec.Cmd {
				cmd := exec.Command(program, append(first, args...)...)
				cmd.Env = environment(os.Environ(), "KUBECONFIG="+file)
				return cmd
			})
		},
	}
}

func (p *program) shellCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "shell",
		Short: "Run a shell in which kubectl, helm and others ask this laptop's Kubernetes",
		Long: `Run your shell ($SHELL) with KUBECONFIG set to this laptop's Kubernetes, for kubectl, helm, k9s and whatever reads it. If
you have no kubectl, the one that Kith brings is there under that name. Nothing is left of it when the shell ends.`,
		Example: "  kith shell\n  echo 'kubectl get nodes' | kith shell",
		Args:    between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withKubeconfig(c, func(dir, file string) *exec.Cmd {
				shell := p.Getenv("SHELL")
				if shell == "" {
					shell = "/bin/sh"
				}
				cmd := exec.Command(shell)
				cmd.Env = environment(os.Environ(), "KUBECONFIG="+file)
				program, first, err := kubectlProgram()
				if err == nil && len(first) > 0 && os.Symlink(program, filepath.Join(dir, "kubectl")) == nil {
					cmd.Env = environment(cmd.Env, "PATH="+dir+string(filepath.ListSeparator)+p.Getenv("PATH"))
				}
				return cmd
			})
		},
	}
}

// childError is that a program that was run has ended with an exit code other than 0, and has said why itself.
type childError struct{ code int }

func (e *childError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// withKubeconfig runs a program that reads a kubeconfig of the caller's, which is in a file of a folder that goes with it.
func (p *program) withKubeconfig(c *cobra.Command, command func(dir, file string) *exec.Cmd) error {
	dir, file, err := p.kubeconfigFile(c)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return p.child(command(dir, file))
}

// kubeconfigFile writes a kubeconfig of the caller's into a folder, which is to be removed.
func (p *program) kubeconfigFile(c *cobra.Command) (dir, file string, err error) {
	text, err := call(p, c, func(kithd *client.Client, ctx context.Context) ([]byte, error) { return kithd.Kubeconfig(ctx) })
	if err != nil {
		return "", "", err
	}
	// Where there is one, a folder in memory that ends with the session.
	dir, err = os.MkdirTemp(p.Getenv("XDG_RUNTIME_DIR"), "kith-")
	if err != nil {
		dir, err = os.MkdirTemp("", "kith-")
	}
	if err != nil {
		return "", "", &api.Error{Code: api.CodeInternal, Message: "no folder for the kubeconfig", Reason: err.Error()}
	}
	file = filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		os.RemoveAll(dir)
		return "", "", &api.Error{Code: api.CodeInternal, Message: "the kubeconfig cannot be written", Reason: err.Error()}
	}
	return dir, file, nil
}

// child runs a program in the place of this one; its exit code is this one's.
func (p *program) child(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.In, p.Out, p.Err
	err := cmd.Run() // the terminal's signals are the program's own: it ends by them, or goes on
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return &childError{max(exit.ExitCode(), 1)}
	}
	if err != nil {
		return &api.Error{Code: api.CodeInternal, Message: cmd.Path + " cannot be run", Reason: err.Error()}
	}
	return nil
}

// kubectlProgram finds kubectl: the user's own, or Kith's, which is kith-k8s called with a first argument.
func kubectlProgram() (path string, first []string, err error) {
	if path, err = exec.LookPath("kubectl"); err == nil {
		return path, nil, nil
	}
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			if path, err = exec.LookPath(filepath.Join(filepath.Dir(self), "kith-k8s")); err == nil {
				return path, []string{"kubectl"}, nil
			}
		}
	}
	if path, err = exec.LookPath("kith-k8s"); err == nil {
		return path, []string{"kubectl"}, nil
	}
	return "", nil, &api.Error{Code: api.CodeUnavailable, Message: "there is no kubectl", Reason: "neither kubectl nor Kith's own, kith-k8s, is found", Do: "install kubectl"}
}

// environment is env with one variable set anew.
func environment(env []string, set string) []string {
	key, _, _ := strings.Cut(set, "=")
	out := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, key+"=") {
			out = append(out, e)
		}
	}
	return append(out, set)
}
