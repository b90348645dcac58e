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

	"kith.dev/cli/program"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/local/kubeconfig"
)

func (p commands) kubeconfigCommand() *cobra.Command {
	var direct, merge, use bool
	var name string
	c := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig of your own for this machine's Kubernetes, or merge it into yours",
		Long: `Print a kubeconfig of your own for this machine's Kubernetes. It leads to the front door at
127.0.0.1:6451, which passes everything on to this laptop's cluster, and holds a certificate
of yours, good for a year as long as you are in the group kith. Who has it is the cluster's
administrator: keep it to yourself. Each call prints another one, and none is kept.

With --merge it is printed nowhere: the context kith is put into your own kubeconfig ($KUBECONFIG, else
~/.kube/config), where kubectl finds it. Other contexts, what is current, comments and unknown fields
stay as they are; a context kith that is not Kith's is left alone, and so is a file that kith does not
understand. The file as it was is kept beside it, as config.before-kith. Call it again for a new certificate.`,
		Example: "  kith kubeconfig --merge && kubectl --context kith get nodes\n  umask 077; kith kubeconfig > ~/.kube/kith.yaml\n  KUBECONFIG=~/.kube/kith.yaml kubectl get nodes",
		Args:    program.Between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if !merge && (use || c.Flags().Changed("context")) {
				return &api.Error{Code: api.CodeInvalid, Message: "--use and --context say how to merge: they need --merge", Do: "see `kith kubeconfig --help`"}
			}
			ask := (*client.Client).Kubeconfig
			if direct {
				ask = (*client.Client).DirectKubeconfig
			}
			b, err := program.Call(p.Program, c, ask)
			if err == nil && merge {
				return p.merge(kubeconfig.Ask{Files: kubeconfig.Files(p.Getenv), Access: b, Context: name, Use: use})
			}
			if err == nil {
				_, err = p.Out.Write(b)
			}
			return err
		},
	}
	c.Flags().BoolVar(&direct, "direct", false, "print the administrator's, which leads to this machine's cluster itself, past the front door")
	c.Flags().BoolVar(&merge, "merge", false, "put it into your own kubeconfig as the context kith")
	c.Flags().BoolVar(&use, "use", false, "with --merge: make it the current context")
	c.Flags().StringVar(&name, "context", kubeconfig.Name, "with --merge: the name of the context")
	c.MarkFlagsMutuallyExclusive("direct", "merge")
	return c
}

// merge puts a context into the user's kubeconfig, and says where and what was there.
func (p commands) merge(ask kubeconfig.Ask) error {
	plan, err := kubeconfig.Make(ask)
	if err != nil {
		return &api.Error{Code: api.CodeConflict, Message: err.Error()}
	}
	backup, err := plan.Write()
	if err != nil {
		return &api.Error{Code: api.CodeInternal, Message: err.Error()}
	}
	fmt.Fprintf(p.Out, "the context %s is in %s%s\n", plan.Context, plan.Path, map[bool]string{true: ", and is the current one"}[plan.Uses || plan.Current == plan.Context])
	if backup != "" {
		fmt.Fprintf(p.Out, "the file as it was: %s\n", backup)
	}
	_, none := exec.LookPath("kubectl")
	switch {
	case none != nil:
		fmt.Fprintln(p.Out, "kith-k8s kubectl get nodes")
	case plan.Uses || plan.Current == plan.Context:
		fmt.Fprintln(p.Out, "kubectl get nodes")
	default:
		fmt.Fprintf(p.Out, "kubectl --context %s get nodes\n", plan.Context)
	}
	return nil
}

func (p commands) kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [ARGUMENT]...",
		Short: "Run kubectl against this laptop's Kubernetes",
		Long: `Run kubectl against this laptop's Kubernetes, whatever your own kubeconfig says: nothing needs to be set up. While the
laptop is tethered, it asks the company's. It is your kubectl, if you have one, else the one that Kith brings; all
arguments are kubectl's. For other programs see kith kubeconfig and kith shell.`,
		Example:            "  kith kubectl get nodes\n  kith kubectl -n shop logs -f deploy/web",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			path, first, err := kubectlProgram()
			if err != nil {
				return err
			}
			return p.withKubeconfig(c, func(_, file string) *exec.Cmd {
				cmd := exec.Command(path, append(first, args...)...)
				cmd.Env = environment(os.Environ(), "KUBECONFIG="+file)
				return cmd
			})
		},
	}
}

func (p commands) shellCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "shell",
		Short: "Run a shell in which kubectl, helm and others ask this laptop's Kubernetes",
		Long: `Run your shell ($SHELL) with KUBECONFIG set to this laptop's Kubernetes, for kubectl, helm, k9s and whatever reads it. If
you have no kubectl, the one that Kith brings is there under that name. Nothing is left of it when the shell ends.`,
		Example: "  kith shell\n  echo 'kubectl get nodes' | kith shell",
		Args:    program.Between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return p.withKubeconfig(c, func(dir, file string) *exec.Cmd {
				shell := p.Getenv("SHELL")
				if shell == "" {
					shell = "/bin/sh"
				}
				cmd := exec.Command(shell)
				cmd.Env = environment(os.Environ(), "KUBECONFIG="+file)
				path, first, err := kubectlProgram()
				if err == nil && len(first) > 0 && os.Symlink(path, filepath.Join(dir, "kubectl")) == nil {
					cmd.Env = environment(cmd.Env, "PATH="+dir+string(filepath.ListSeparator)+p.Getenv("PATH"))
				}
				return cmd
			})
		},
	}
}

// withKubeconfig runs a program that reads a kubeconfig of the caller's, which is in a file of a folder that goes with it.
func (p commands) withKubeconfig(c *cobra.Command, command func(dir, file string) *exec.Cmd) error {
	dir, file, err := p.kubeconfigFile(c)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return p.child(command(dir, file))
}

// kubeconfigFile writes a kubeconfig of the caller's into a folder, which is to be removed.
func (p commands) kubeconfigFile(c *cobra.Command) (dir, file string, err error) {
	text, err := program.Call(p.Program, c, func(kithd *client.Client, ctx context.Context) ([]byte, error) { return kithd.Kubeconfig(ctx) })
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
func (p commands) child(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.In, p.Out, p.Err
	err := cmd.Run() // the terminal's signals are the program's own: it ends by them, or goes on
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return program.Exit(max(exit.ExitCode(), 1))
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
