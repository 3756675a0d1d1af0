/**
 * Starts a Kubernetes API server for JUnit tests and gives each test a world of its own.
 *
 * <p>{@link dev.dogwatch.kit.DogwatchExtension} injects the parameters of tests. {@link dev.dogwatch.kit.Server} is the running program,
 * {@link dev.dogwatch.kit.World} a control plane beside it, and {@link dev.dogwatch.kit.Lab} has the powers over both.
 */
package dev.dogwatch.kit;
